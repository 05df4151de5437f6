# Language level, warnings, sanitizers, ccache and output folders.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
set(CMAKE_UNITY_BUILD_UNIQUE_ID DRIVETRAIN_UNITY_ID)

# The build tree mirrors the install tree, so the program finds its libraries the same way in both.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

set(DRIVETRAIN_SANITIZE "" CACHE STRING "asan, tsan or empty")
if(DRIVETRAIN_SANITIZE STREQUAL "asan")
  add_compile_options(-fsanitize=address,undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(DRIVETRAIN_SANITIZE STREQUAL "tsan")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(DRIVETRAIN_SANITIZE)
  message(FATAL_ERROR "DRIVETRAIN_SANITIZE is '${DRIVETRAIN_SANITIZE}'; wanted asan, tsan or nothing")
endif()

find_program(DRIVETRAIN_CCACHE ccache)
if(DRIVETRAIN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${DRIVETRAIN_CCACHE})
endif()

add_library(drivetrain_warnings INTERFACE)
target_compile_options(drivetrain_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-unused-parameter>)
