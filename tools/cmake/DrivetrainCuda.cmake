# Whether CUDA parts can be built: LibTorch 2.11's CUDA flavour is 13, so they need nvcc 13. Without it everything else
# builds, and this says so. Gives DRIVETRAIN_NVCC (path, or false) for the CUDA parts to ask.
find_program(DRIVETRAIN_NVCC_FOUND nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDACXX} /usr/local/cuda/bin /usr/local/cuda-13/bin)
mark_as_advanced(DRIVETRAIN_NVCC_FOUND)
set(DRIVETRAIN_NVCC FALSE)
if(NOT DRIVETRAIN_NVCC_FOUND)
  message(STATUS "CUDA parts: not built, there is no nvcc (13.x is needed); everything for the CPU is built")
else()
  execute_process(COMMAND ${DRIVETRAIN_NVCC_FOUND} --version OUTPUT_VARIABLE _nvcc ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+)\\.([0-9]+)" _release "${_nvcc}")
  if(CMAKE_MATCH_1 EQUAL 13)
    set(DRIVETRAIN_NVCC ${DRIVETRAIN_NVCC_FOUND})
    message(STATUS "CUDA parts: nvcc ${CMAKE_MATCH_1}.${CMAKE_MATCH_2} found; this version has none yet")
  else()
    message(STATUS "CUDA parts: not built, ${DRIVETRAIN_NVCC_FOUND} is '${_release}' and 13.x is needed; everything for "
                   "the CPU is built")
  endif()
endif()
