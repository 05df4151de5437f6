# LibTorch as hand-written imported targets: find_package(Torch) would want a CUDA toolkit and compile probes.
#
# DRIVETRAIN_TORCH (cache variable or environment) is the torch package folder, the one that holds include/ and lib/;
# without it: the `run` set that tools/quickstart and tools/check unpack. Nothing is fetched here.
# Gives drivetrain_torch (headers and libraries), drivetrain_torch_cpu, drivetrain_c10, DRIVETRAIN_TORCH_VERSION.
set(DRIVETRAIN_TORCH_VERSION 2.11.0)

if(NOT DRIVETRAIN_TORCH)
  if(DEFINED ENV{DRIVETRAIN_TORCH})
    set(_torch $ENV{DRIVETRAIN_TORCH})
  elseif(DEFINED ENV{DRIVETRAIN_DEPS})
    set(_torch $ENV{DRIVETRAIN_DEPS}/torch-${DRIVETRAIN_TORCH_VERSION}-run/torch)
  else()
    set(_torch $ENV{HOME}/.cache/drivetrain/torch-${DRIVETRAIN_TORCH_VERSION}-run/torch)
  endif()
  set(DRIVETRAIN_TORCH ${_torch} CACHE PATH "torch package folder (holds include/ and lib/)" FORCE)
endif()

set(_version_header ${DRIVETRAIN_TORCH}/include/torch/headeronly/version.h)
if(NOT EXISTS ${DRIVETRAIN_TORCH}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "No LibTorch at DRIVETRAIN_TORCH=${DRIVETRAIN_TORCH}: lib/libtorch_cpu.so is not there. Run "
                      "tools/quickstart or tools/check once, or set DRIVETRAIN_TORCH to the `torch` folder of an unpacked "
                      "or installed torch ${DRIVETRAIN_TORCH_VERSION} wheel.")
endif()
# Releases before 2.10 keep the version elsewhere: no header here is another version too.
set(_found "another version")
if(EXISTS ${_version_header})
  file(STRINGS ${_version_header} _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^;]* ([0-9]+)" "\\1" _found "${_lines}")
  list(JOIN _found "." _found)
endif()
if(NOT _found STREQUAL DRIVETRAIN_TORCH_VERSION)
  message(FATAL_ERROR "LibTorch at DRIVETRAIN_TORCH=${DRIVETRAIN_TORCH} is ${_found}; Drivetrain needs "
                      "${DRIVETRAIN_TORCH_VERSION}. Unset DRIVETRAIN_TORCH and run tools/quickstart, which brings it.")
endif()

if(TARGET drivetrain_torch)  # another project of the same build has looked for it
  return()
endif()
foreach(name c10 torch_cpu)
  add_library(drivetrain_${name} SHARED IMPORTED GLOBAL)
  set_target_properties(drivetrain_${name} PROPERTIES IMPORTED_LOCATION ${DRIVETRAIN_TORCH}/lib/lib${name}.so)
endforeach()
add_library(drivetrain_torch INTERFACE)
if(NOT DRIVETRAIN_INSTALLED)  # two headers that make this tree's sources quicker to compile; they say how
  target_include_directories(drivetrain_torch SYSTEM INTERFACE ${CMAKE_CURRENT_LIST_DIR}/quick)
endif()
target_include_directories(drivetrain_torch SYSTEM INTERFACE
  ${DRIVETRAIN_TORCH}/include ${DRIVETRAIN_TORCH}/include/torch/csrc/api/include)
target_compile_definitions(drivetrain_torch INTERFACE AT_PER_OPERATOR_HEADERS USE_DISTRIBUTED)
target_link_libraries(drivetrain_torch INTERFACE drivetrain_torch_cpu drivetrain_c10)
# LibTorch's headers open its thread pool (at::parallel_for) only to code that is compiled with OpenMP; without it the
# loop runs on the calling thread and nobody says so. The runtime is the libgomp.so.1 that LibTorch itself brings: a second
# one would be a second pool of threads.
if(NOT EXISTS ${DRIVETRAIN_TORCH}/lib/libgomp.so.1)
  message(FATAL_ERROR "LibTorch at ${DRIVETRAIN_TORCH} has no lib/libgomp.so.1, its OpenMP runtime. Take the torch "
                      "${DRIVETRAIN_TORCH_VERSION} wheel of PyPI (tools/quickstart brings it).")
endif()
if(DRIVETRAIN_SANITIZE STREQUAL "tsan")
  # ThreadSanitizer does not see libgomp's barriers and would call every loop a race: these builds have one thread.
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(drivetrain_torch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
  target_link_libraries(drivetrain_torch INTERFACE ${DRIVETRAIN_TORCH}/lib/libgomp.so.1)
else()
  message(WARNING "${CMAKE_CXX_COMPILER_ID} cannot use LibTorch's OpenMP runtime (libgomp): at::parallel_for in code that it "
                  "compiles runs on one thread. Use g++ 12 or newer (CXX=g++).")
endif()
# What LibTorch itself links (CUDA runtime, CUPTI) is found through its own RPATH at run time.
target_link_options(drivetrain_torch INTERFACE
  -Wl,-rpath-link,${DRIVETRAIN_TORCH}/lib:${DRIVETRAIN_TORCH}/../nvidia/cu13/lib)
