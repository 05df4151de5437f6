# drivetrain_add_test, drivetrain_add_command_test and the labels of CTest. In this tree only; the installed package has no tests.
#
#   drivetrain_add_test(json_read_test json_read_test.cpp REACHES tests/json)
#   drivetrain_add_test(step_on_gpu_test step_on_gpu_test.cpp LABELS gpu TIMEOUT 600 LINK helpers REACHES commands)
#   drivetrain_add_command_test(static.words COMMAND python3 words.py REACHES sources LABELS static)
#
# The first makes a GoogleTest program that may reach insides of the runtime and of commands, and one CTest test that runs it;
# the last makes a CTest test of a command. Where its sources include none of those it does without the library (and
# LibTorch); STANDALONE says so where that cannot be seen, because LINK has what it needs. OPTIMISED: the test's own code takes its time. Several sources are compiled in few pieces, so names of
# their unnamed namespaces must differ; APART compiles each for itself. SHARDS n: CTest runs the program's tests as NAME_1
# to NAME_n, each a share of them; for programs whose tests mostly wait. COST, about its seconds, is for tests of a minute
# and more: CTest begins with them, so that none is left running when all others are done. Labels: `gpu` marks a test that
# needs a GPU, the only kind that may skip itself (names that end in _gpu_test have it anyway); `program` one that runs the
# built program. All others are `unit`, which is what `tools/check --sanitize` builds and runs.
# GPU tests are installed too, for tools/gpu_check: they may use nothing of this source tree when they run.
#
# REACHES: what the test opens beside its own command, in words of tests/reach/declared.py: program, bench, plugins,
# KIND_NAME (with *), package, sources, a file or folder of the checkout; `commands` where that is nothing. tools/check runs
# a test again when one of these has changed, and names what a test opened without saying so.
# PROCESSORS: quarters of a core that the test keeps busy, for `ctest -j` with five for each core. 3 without it, what they
# need in the mean; a test that mostly waits, for time-outs, logins or other processes, says WAITS, which is 1.
find_package(GTest REQUIRED)
set(DRIVETRAIN_GOLDEN_DIR ${CMAKE_SOURCE_DIR}/tests/golden/data)  # made by independent software; its README says how
# What nearly every test includes, read once instead of in each of them. Headers of the contract are among them, others
# of ours are not: a change there should compile the tests that include them and no more.
include(DrivetrainReach)
set(_pch_source ${CMAKE_BINARY_DIR}/tests/precompiled.cpp)
file(CONFIGURE OUTPUT ${_pch_source} CONTENT "// Carries the precompiled header of the tests.\nint main() {}\n")
set(_plain_headers <gtest/gtest.h> <algorithm> <array> <chrono> <filesystem> <fstream> <functional> <map> <memory>
  <optional> <set> <sstream> <string> <thread> <variant> <vector>)
set(_torch_headers <ATen/core/Tensor.h> <ATen/core/grad_mode.h> <ATen/TensorOperators.h> <ATen/ops/empty.h>
  <drivetrain/data_parallel.h> <drivetrain/layers.h> <drivetrain/lr_schedule.h> <drivetrain/mesh.h> <drivetrain/model.h>
  <drivetrain/monitor.h> <drivetrain/plan_context.h> <drivetrain/precision.h> <drivetrain/recompute.h>
  <drivetrain/schedule.h> <drivetrain/tensor_parallel.h>)
# drivetrain_test_headers(NAME REACH [OPTION...]): the carrier of a precompiled header, compiled with these options and, but
# for `standalone`, with LibTorch's, -fopenmp among them: the compiler takes none that was compiled otherwise.
function(drivetrain_test_headers name reach)
  add_executable(${name} EXCLUDE_FROM_ALL ${_pch_source})  # a program, to be compiled as they are
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE drivetrain_warnings GTest::gtest)
  target_compile_options(${name} PRIVATE ${ARGN})
  target_precompile_headers(${name} PRIVATE ${_plain_headers})
  if(reach STREQUAL "runtime")
    target_link_libraries(${name} PRIVATE drivetrain_torch)
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/runtime/api)
    target_precompile_headers(${name} PRIVATE ${_torch_headers})
    # The compiler knows a header that it has read by its time of change, so one of ours out of a cache is not the same.
    set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER "")
  endif()
endfunction()
# Two thirds of a test's compilation would be optimising its comparisons, which run once. OPTIMISED ones compute themselves.
foreach(reach standalone runtime)
  drivetrain_test_headers(drivetrain_${reach}_test_headers ${reach} $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  drivetrain_test_headers(drivetrain_optimised_${reach}_test_headers ${reach})
endforeach()
# There are some hundred and fifty programs, which gold, where binutils has it, links in a third of the time.
find_program(DRIVETRAIN_GOLD ld.gold)
mark_as_advanced(DRIVETRAIN_GOLD)
add_custom_target(unit_tests)  # every drivetrain_add_test program and the plugins

# Leaks and races inside LibTorch are not ours to judge.
set(DRIVETRAIN_TEST_ENVIRONMENT
  "ASAN_OPTIONS=detect_stack_use_after_return=1"
  "LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/lsan.supp:print_suppressions=0"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp:ignore_noninstrumented_modules=1")

# The plugins that nearly every run opens, for REACHES.
set(DRIVETRAIN_RUN attention_flash checkpoint_policy_every checkpoint_policy_on_signal checkpoint_store_sharded
  communicator_local data_parallel_ddp dataset_synthetic lr_schedule_constant model_gpt monitor_console monitor_jsonl
  optimizer_adamw schedule_accumulate strategy_fused_block)

# drivetrain_register_test(NAME COMMAND...): the CTest test of a command, with what the caller, one of the two functions
# below, was told of it (ARG_*).
function(drivetrain_register_test name)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(DRIVETRAIN_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 5")
  endif()
  if(ARG_WAITS)
    set(ARG_PROCESSORS 1)
  elseif(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 3)
  endif()
  add_test(NAME ${name} COMMAND ${CMAKE_SOURCE_DIR}/tests/reach/run_test ${name} ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ARG_PROCESSORS}
    ENVIRONMENT "${DRIVETRAIN_TEST_ENVIRONMENT};${ARG_ENVIRONMENT}")
  if(ARG_COST)
    set_tests_properties(${name} PROPERTIES COST ${ARG_COST})
  endif()
  string(REPLACE ";" "," words "${ARG_REACHES}")
  set_property(GLOBAL APPEND_STRING PROPERTY DRIVETRAIN_REACH "${name}\t${words}\n")
endfunction()

function(drivetrain_add_command_test name)
  cmake_parse_arguments(ARG "WAITS" "TIMEOUT;COST;PROCESSORS;WORKING_DIRECTORY" "COMMAND;LABELS;REACHES;ENVIRONMENT" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "drivetrain_add_command_test(${name}): not understood: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  drivetrain_register_test(${name} ${ARG_COMMAND})
  if(ARG_WORKING_DIRECTORY)
    set_tests_properties(${name} PROPERTIES WORKING_DIRECTORY ${ARG_WORKING_DIRECTORY})
  endif()
endfunction()

function(drivetrain_add_test name)
  cmake_parse_arguments(ARG "STANDALONE;OPTIMISED;APART;WAITS" "TIMEOUT;COST;SHARDS;PROCESSORS" "LABELS;LINK;REACHES" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/runtime ${CMAKE_SOURCE_DIR}/tests
    ${CMAKE_BINARY_DIR}/testkit/include)
  set(reach standalone)
  if(NOT ARG_STANDALONE)
    drivetrain_reach(reach ${ARG_UNPARSED_ARGUMENTS})
    if(reach STREQUAL "standalone")
      target_link_libraries(${name} PRIVATE drivetrain_base)
    else()
      target_link_libraries(${name} PRIVATE drivetrain_testkit drivetrain_toolkit drivetrain)
      if(reach STREQUAL "commands")
        if(name MATCHES "_gpu_test$")  # it travels: with the part that trains alone, and not with all commands
          target_link_libraries(${name} PRIVATE drivetrain_train)
          target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tools/commands)
          target_link_options(${name} PRIVATE -Wl,--gc-sections)
        else()
          target_link_libraries(${name} PRIVATE drivetrain_testing)
        endif()
        set(reach runtime)  # compiled as those are
      endif()
    endif()
  endif()
  target_link_libraries(${name} PRIVATE drivetrain_warnings GTest::gtest_main ${ARG_LINK})
  if(DRIVETRAIN_GOLD)
    target_link_options(${name} PRIVATE -fuse-ld=gold)
  endif()
  list(LENGTH ARG_UNPARSED_ARGUMENTS count)
  if(count GREATER 1 AND NOT ARG_APART)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
  if(ARG_OPTIMISED)
    target_precompile_headers(${name} REUSE_FROM drivetrain_optimised_${reach}_test_headers)
  else()
    target_precompile_headers(${name} REUSE_FROM drivetrain_${reach}_test_headers)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  endif()
  target_compile_definitions(${name} PRIVATE DRIVETRAIN_GOLDEN_DIR="${DRIVETRAIN_GOLDEN_DIR}"
    DRIVETRAIN_BUILD_DIR="${CMAKE_BINARY_DIR}" DRIVETRAIN_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests
    BUILD_RPATH "${CMAKE_BINARY_DIR}/tests/lib;${CMAKE_BINARY_DIR}/lib;${DRIVETRAIN_TORCH}/lib;${DRIVETRAIN_TORCH}/../nvidia/cu13/lib")
  if(name MATCHES "_gpu_test$" AND NOT "gpu" IN_LIST ARG_LABELS)
    list(APPEND ARG_LABELS gpu)
  endif()
  if("gpu" IN_LIST ARG_LABELS)
    if(DRIVETRAIN_NVCC)  # for those that call the CUDA runtime themselves; at run time it is LibTorch's
      target_link_libraries(${name} PRIVATE CUDA::cudart)
    endif()
    set_target_properties(${name} PROPERTIES INSTALL_RPATH "\$ORIGIN/lib;\$ORIGIN/../lib;${DRIVETRAIN_TORCH}/lib")
    install(TARGETS ${name} RUNTIME DESTINATION tests COMPONENT gpu_tests EXCLUDE_FROM_ALL)
    set_property(GLOBAL APPEND PROPERTY DRIVETRAIN_GPU_TESTS ${name})
  endif()
  if(NOT "program" IN_LIST ARG_LABELS)
    list(APPEND ARG_LABELS unit)
    add_dependencies(unit_tests ${name})
  endif()
  set(tests ${name})
  if(ARG_SHARDS)
    set(tests)
    foreach(shard RANGE 1 ${ARG_SHARDS})
      list(APPEND tests ${name}_${shard})
      math(EXPR index "${shard} - 1")
      set(ARG_ENVIRONMENT GTEST_TOTAL_SHARDS=${ARG_SHARDS} GTEST_SHARD_INDEX=${index})
      drivetrain_register_test(${name}_${shard} $<TARGET_FILE:${name}>)
    endforeach()
  else()
    drivetrain_register_test(${name} $<TARGET_FILE:${name}>)
  endif()
  # A test that skips or disables itself proves nothing and would still be green. A program is skipped only if none of its
  # tests passed and none failed, which GoogleTest tells behind the skipped ones: CTest calls what fits this skipped,
  # whatever the exit code.
  if("gpu" IN_LIST ARG_LABELS)
    set_tests_properties(${tests} PROPERTIES SKIP_REGULAR_EXPRESSION
      "\\[  PASSED  \\] 0 tests\\.\n(\\[  SKIPPED \\] [^\n]*\n)+([^[]|\\[[^ ]|$)")
  else()
    set_tests_properties(${tests} PROPERTIES
      FAIL_REGULAR_EXPRESSION "\\[  SKIPPED \\];YOU HAVE [0-9]+ DISABLED TEST;Running 0 tests")
  endif()
endfunction()
