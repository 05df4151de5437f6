# Language level, warnings, sanitizers, ccache, output folders and install rules that belong to no folder.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "g++ ${CMAKE_CXX_COMPILER_VERSION} is too old; Drivetrain needs g++ 12 (set CXX to a newer one)")
endif()
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug or RelWithDebInfo" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
# Nobody reads errno after a square root, and loops that might set it cannot become vector code.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-math-errno>)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# Full debug information of one LibTorch file is 10 MB of object and half the compile time.
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1 -D_GLIBCXX_ASSERTIONS")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -D_GLIBCXX_ASSERTIONS")
set(CMAKE_UNITY_BUILD_UNIQUE_ID DRIVETRAIN_UNITY_ID)

# The build tree mirrors the install tree, so the program finds its libraries the same way in both.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
# What links a shared library need not be linked again when that one changes: it is opened when it runs.
set(CMAKE_LINK_DEPENDS_NO_SHARED ON)

set(DRIVETRAIN_SANITIZE "" CACHE STRING "asan (with undefined behaviour), tsan or empty")
if(DRIVETRAIN_SANITIZE STREQUAL "asan")
  # nvcc knows none of these.
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=address,undefined>
    $<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize-recover=undefined> $<$<COMPILE_LANGUAGE:C,CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=address,undefined)
elseif(DRIVETRAIN_SANITIZE STREQUAL "tsan")
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=thread> $<$<COMPILE_LANGUAGE:C,CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=thread)
elseif(DRIVETRAIN_SANITIZE)
  message(FATAL_ERROR "DRIVETRAIN_SANITIZE is '${DRIVETRAIN_SANITIZE}'; wanted asan, tsan or nothing")
endif()

find_program(DRIVETRAIN_CCACHE ccache)
if(DRIVETRAIN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Sources that use a precompiled header are cached only with these two. The compiler compares the text of a precompiled
  # header's files, comments too, so a header that was cached before its comments changed must not be taken.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_COMMENTS=1 CCACHE_SLOPPINESS=pch_defines,time_macros
      ${DRIVETRAIN_CCACHE})
endif()

add_library(drivetrain_warnings INTERFACE)
target_compile_options(drivetrain_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-unused-parameter>)
if(DRIVETRAIN_SANITIZE)  # its instrumentation makes g++ 12 see uninitialised values inside the standard library
  target_compile_options(drivetrain_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
endif()

# For code that runs once or waits for others: it compiles in two thirds of the time. What works in every step keeps -O2.
function(drivetrain_compile_lightly target)
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
endfunction()
