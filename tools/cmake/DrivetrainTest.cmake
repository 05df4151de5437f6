# drivetrain_add_test and the labels of CTest. In this tree only; the installed package has no tests.
#
#   drivetrain_add_test(json_read_test json_read_test.cpp)
#   drivetrain_add_test(step_on_gpu_test step_on_gpu_test.cpp LABELS gpu TIMEOUT 600 LINK helpers)
#
# makes a GoogleTest program that may reach runtime internals, and one CTest test that runs it. Labels: `gpu` marks a test
# that needs a GPU, the only kind that may skip itself; `program` one that runs the built program. All others are `unit`,
# which is what `tools/check --sanitize` builds and runs.
find_package(GTest REQUIRED)
set(DRIVETRAIN_GOLDEN_DIR ${CMAKE_SOURCE_DIR}/../shared/golden CACHE PATH "golden data made by independent software")
add_custom_target(unit_tests)  # every drivetrain_add_test program and the plugins

# Leaks and races inside LibTorch are not ours to judge.
set(DRIVETRAIN_TEST_ENVIRONMENT
  "ASAN_OPTIONS=detect_stack_use_after_return=1"
  "LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/lsan.supp:print_suppressions=0"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp:ignore_noninstrumented_modules=1")

function(drivetrain_add_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LABELS;LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/runtime ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE drivetrain drivetrain_warnings GTest::gtest_main ${ARG_LINK})
  target_compile_definitions(${name} PRIVATE DRIVETRAIN_GOLDEN_DIR="${DRIVETRAIN_GOLDEN_DIR}"
    DRIVETRAIN_BUILD_DIR="${CMAKE_BINARY_DIR}" DRIVETRAIN_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests
    BUILD_RPATH "${CMAKE_BINARY_DIR}/lib;${DRIVETRAIN_TORCH}/lib")
  if(NOT "program" IN_LIST ARG_LABELS)
    list(APPEND ARG_LABELS unit)
    add_dependencies(unit_tests ${name})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(DRIVETRAIN_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 5")
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "${DRIVETRAIN_TEST_ENVIRONMENT}")
  # A test that skips or disables itself proves nothing and would still be green.
  if("gpu" IN_LIST ARG_LABELS)
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
  else()
    set_tests_properties(${name} PROPERTIES
      FAIL_REGULAR_EXPRESSION "\\[  SKIPPED \\];YOU HAVE [0-9]+ DISABLED TEST;Running 0 tests")
  endif()
endfunction()
