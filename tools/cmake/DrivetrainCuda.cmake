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
    set(CMAKE_CUDA_COMPILER ${DRIVETRAIN_NVCC_FOUND})
    set(CMAKE_CUDA_ARCHITECTURES 80 90 CACHE STRING "GPU generations to compile for")
    set(CMAKE_CUDA_STANDARD 17)
    set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # LibTorch's; a second copy in the process would know other devices
    enable_language(CUDA)
    find_package(CUDAToolkit 13.0 REQUIRED)
    # Of cuBLASLt the header is enough; LibTorch brings the library. CUDA's packages have it in one of its own.
    find_path(DRIVETRAIN_CUBLASLT cublasLt.h PATHS ${CUDAToolkit_INCLUDE_DIRS} NO_DEFAULT_PATH)
    mark_as_advanced(DRIVETRAIN_CUBLASLT)
    if(NOT DRIVETRAIN_CUBLASLT)
      message(FATAL_ERROR "CUDA parts: cublasLt.h is missing, it is in none of ${CUDAToolkit_INCLUDE_DIRS}: install cuBLAS's "
                          "headers for this nvcc (NVIDIA's package libcublas-dev-${CUDAToolkit_VERSION_MAJOR}-"
                          "${CUDAToolkit_VERSION_MINOR}), or build for the CPU alone with -DDRIVETRAIN_NVCC_FOUND=OFF")
    endif()
    message(STATUS "CUDA parts: nvcc ${CMAKE_CUDA_COMPILER_VERSION} for architectures ${CMAKE_CUDA_ARCHITECTURES}")
  else()
    message(STATUS "CUDA parts: not built, ${DRIVETRAIN_NVCC_FOUND} is '${_release}' and 13.x is needed; everything for "
                   "the CPU is built")
  endif()
endif()
