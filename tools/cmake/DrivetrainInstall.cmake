# What `cmake --install` lays out beside the program and the plugins, whose own files say where they go:
# lib/libdrivetrain.so, lib/drivetrain/commands, the SDK headers, and the CMake package for plugins built outside this tree.
include(CMakePackageConfigHelpers)
set(_package lib/cmake/Drivetrain)

# An outside program that links the library finds the LibTorch of this build; `drivetrain` itself opens LibTorch first.
set_target_properties(drivetrain PROPERTIES INSTALL_RPATH "\$ORIGIN;${DRIVETRAIN_TORCH}/lib")
install(TARGETS drivetrain LIBRARY DESTINATION lib)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/runtime/api/drivetrain DESTINATION include FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_BINARY_DIR}/include/drivetrain/api_digest.h ${CMAKE_BINARY_DIR}/installed/headers.sha256
  DESTINATION include/drivetrain)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/DrivetrainConfig.cmake.in
  ${CMAKE_BINARY_DIR}/DrivetrainConfig.cmake INSTALL_DESTINATION ${_package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/DrivetrainConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/DrivetrainConfig.cmake ${CMAKE_BINARY_DIR}/DrivetrainConfigVersion.cmake
  ${CMAKE_BINARY_DIR}/DrivetrainKinds.cmake
  ${CMAKE_CURRENT_LIST_DIR}/DrivetrainTorch.cmake ${CMAKE_CURRENT_LIST_DIR}/DrivetrainPlugin.cmake
  ${CMAKE_CURRENT_LIST_DIR}/DrivetrainConformance.cmake
  ${CMAKE_CURRENT_LIST_DIR}/manifest.cpp.in ${CMAKE_CURRENT_LIST_DIR}/plugin_exports.map
  ${CMAKE_CURRENT_LIST_DIR}/check_door.cmake
  DESTINATION ${_package})

# The same for builds without CMake: pkg-config, and a manifest as a line of the source (toolkit/manifest.h).
foreach(_name drivetrain drivetrain-toolkit)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/${_name}.pc.in ${CMAKE_BINARY_DIR}/${_name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${_name}.pc DESTINATION lib/pkgconfig)
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/installed/libtorch_build.h @ONLY CONTENT [[
// Generated: which LibTorch this library was built against. Do not edit.
#pragma once
#define DRIVETRAIN_LIBTORCH "@DRIVETRAIN_TORCH_FLAVOUR@"
#define DRIVETRAIN_LIBTORCH_BUILD_ID "@DRIVETRAIN_TORCH_BUILD_ID@"
]])
install(FILES ${CMAKE_BINARY_DIR}/installed/libtorch_build.h DESTINATION include/drivetrain/toolkit)

# What a machine with LibTorch lacks: the libraries that came from packages of this system, as files beside ours.
get_property(_plugins GLOBAL PROPERTY DRIVETRAIN_PLUGINS)
get_property(_commands GLOBAL PROPERTY DRIVETRAIN_COMMANDS)
list(APPEND _plugins ${_commands})
list(TRANSFORM _plugins REPLACE "(.+)" "$<TARGET_FILE:\\1>")
install(CODE "set(_library \"$<TARGET_FILE:drivetrain>\")\nset(_plugins \"${_plugins}\")\nset(_program \"$<TARGET_FILE:drivetrain_program>\")")
install(CODE [[
  foreach(_file IN LISTS _plugins)
    if(NOT EXISTS ${_file})  # a build of `quickstart` has no benchmarks
      list(REMOVE_ITEM _plugins ${_file})
    endif()
  endforeach()
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${_program} LIBRARIES ${_library} MODULES ${_plugins} RESOLVED_DEPENDENCIES_VAR _found UNRESOLVED_DEPENDENCIES_VAR _missing
       PRE_INCLUDE_REGEXES "^lib(tbb|spdlog|fmt|crypto|xxhash|utf8proc|hwloc|z|zstd)\\.so" PRE_EXCLUDE_REGEXES ".")
  if(_missing)
    message(FATAL_ERROR "not found, and needed on other machines: ${_missing}")
  endif()
  foreach(_file IN LISTS _found)
    file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/lib" TYPE SHARED_LIBRARY FILES ${_file} FOLLOW_SYMLINK_CHAIN)
  endforeach()
]])

# `cmake --install BUILD --component gpu_tests` adds what tools/gpu_check needs beside the plain install; the target builds it.
get_property(_gpu_tests GLOBAL PROPERTY DRIVETRAIN_GPU_TESTS)
add_custom_target(gpu_tests DEPENDS ${_gpu_tests})
install(PROGRAMS ${CMAKE_SOURCE_DIR}/tools/gpu_check DESTINATION tools COMPONENT gpu_tests EXCLUDE_FROM_ALL)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/tools/gpu DESTINATION tools COMPONENT gpu_tests EXCLUDE_FROM_ALL PATTERN "__pycache__" EXCLUDE)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/tools/bench DESTINATION tools COMPONENT gpu_tests EXCLUDE_FROM_ALL USE_SOURCE_PERMISSIONS
        PATTERN "__pycache__" EXCLUDE)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/configs/bench DESTINATION configs COMPONENT gpu_tests EXCLUDE_FROM_ALL)
