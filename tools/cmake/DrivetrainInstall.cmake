# What `cmake --install` lays out beside the program and the plugins, whose own files say where they go:
# lib/libdrivetrain.so, the SDK headers, and the CMake package for plugins built outside this tree.
include(CMakePackageConfigHelpers)
set(_package lib/cmake/Drivetrain)

# An outside program that links the library finds the LibTorch of this build; `drivetrain` itself opens LibTorch first.
set_target_properties(drivetrain PROPERTIES INSTALL_RPATH "\$ORIGIN;${DRIVETRAIN_TORCH}/lib")
install(TARGETS drivetrain LIBRARY DESTINATION lib)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/runtime/api/drivetrain DESTINATION include FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_BINARY_DIR}/include/drivetrain/api_digest.h DESTINATION include/drivetrain)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/DrivetrainConfig.cmake.in
  ${CMAKE_BINARY_DIR}/DrivetrainConfig.cmake INSTALL_DESTINATION ${_package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/DrivetrainConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/DrivetrainConfig.cmake ${CMAKE_BINARY_DIR}/DrivetrainConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/DrivetrainTorch.cmake ${CMAKE_CURRENT_LIST_DIR}/DrivetrainPlugin.cmake
  ${CMAKE_CURRENT_LIST_DIR}/manifest.cpp.in ${CMAKE_CURRENT_LIST_DIR}/plugin_exports.map
  DESTINATION ${_package})
