# drivetrain_add_plugin and drivetrain_add_test, shared by this tree and the installed package.

# drivetrain_add_test(NAME SOURCES...): a GoogleTest program that may reach runtime internals.
function(drivetrain_add_test name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/runtime ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE drivetrain drivetrain_warnings GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE DRIVETRAIN_GOLDEN_DIR="${DRIVETRAIN_GOLDEN_DIR}"
    DRIVETRAIN_BUILD_DIR="${CMAKE_BINARY_DIR}" DRIVETRAIN_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests
    BUILD_RPATH "${CMAKE_BINARY_DIR}/lib;${DRIVETRAIN_TORCH}/lib")
  add_test(NAME ${name} COMMAND ${name})
endfunction()
