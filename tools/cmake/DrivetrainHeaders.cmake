# Precompiled headers, in this tree only: LibTorch's tensor and what makes one cost a compiler five seconds per source,
# and are read once for all libraries instead (drivetrain_precompile) and once for all tests (DrivetrainTest.cmake).
# No header of ours is among them: which headers of the contract a plugin reaches has to be its own doing (export.h).
# Builds with a sanitizer do without, so that an include which a source forgot is found there.
if(NOT DRIVETRAIN_SANITIZE)
  set(_source ${CMAKE_BINARY_DIR}/precompiled/libraries.cpp)
  file(CONFIGURE OUTPUT ${_source} CONTENT "// Carries the precompiled header of the libraries.\n")
  add_library(drivetrain_library_headers OBJECT EXCLUDE_FROM_ALL ${_source})  # compiled with the flags of a library
  target_link_libraries(drivetrain_library_headers PRIVATE drivetrain_torch drivetrain_warnings)
  target_compile_features(drivetrain_library_headers PRIVATE cxx_std_20)
  target_precompile_headers(drivetrain_library_headers PRIVATE <ATen/core/Tensor.h> <ATen/core/grad_mode.h>
    <ATen/Parallel.h> <ATen/ops/empty.h> <algorithm> <cmath> <functional> <map> <memory> <mutex> <numeric> <optional> <set>
    <sstream> <string> <thread> <variant> <vector>)
endif()

# For targets that link drivetrain_torch and are parts of shared libraries.
function(drivetrain_precompile target)
  if(NOT DRIVETRAIN_SANITIZE)
    target_precompile_headers(${target} REUSE_FROM drivetrain_library_headers)
  endif()
endfunction()
