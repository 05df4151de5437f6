# drivetrain_reach(OUT SOURCE...): how far the sources include, themselves and through headers of ours: `standalone` if nothing but
# helpers of the tests and what drivetrain_base has (Value and Error), so that they need neither the runtime nor LibTorch;
# `commands` if a part of tools/commands or tools/lab; else `runtime`. It is found out when CMake runs; a test that includes more
# since then links when CMake has run again.
set(_reach_folders runtime/api plugins/toolkit/api runtime tests plugins tools/commands tools/lab tools .)

# Where a source of `folder` finds `header`; empty where it is not ours.
function(_drivetrain_own_header header folder out)
  string(REGEX REPLACE "^drivetrain/testkit/" "tests/conformance/" header ${header})
  set(${out} "" PARENT_SCOPE)
  foreach(candidate ${folder} ${_reach_folders})
    cmake_path(ABSOLUTE_PATH candidate BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
    cmake_path(APPEND candidate ${header} OUTPUT_VARIABLE path)
    cmake_path(NORMAL_PATH path)
    if(EXISTS ${path} AND NOT IS_DIRECTORY ${path})
      set(${out} ${path} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# What being this file means, whatever it includes.
function(_drivetrain_reach_alone file out)
  cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
  set(${out} runtime PARENT_SCOPE)
  if(file MATCHES "^tools/(commands|lab)/")
    set(${out} commands PARENT_SCOPE)
  elseif(file MATCHES "^runtime/api/drivetrain/(error|export|value)\\.h$|^tests/conformance/kit/temp_folder\\.h$" OR
     (file MATCHES "^tests/" AND NOT file MATCHES "^tests/conformance/"))
    set(${out} standalone PARENT_SCOPE)
  endif()
endfunction()

# The farther one of two.
function(_drivetrain_farther one other out)
  if(one STREQUAL "commands" OR other STREQUAL "standalone")
    set(${out} ${one} PARENT_SCOPE)
  else()
    set(${out} ${other} PARENT_SCOPE)
  endif()
endfunction()

# Remembered for each file. Only tests, which lie beside plugins too, and their helpers can reach farther than they do in
# themselves.
function(_drivetrain_reach_of file out)
  get_property(reach GLOBAL PROPERTY DRIVETRAIN_REACH_${file})
  if(NOT reach)
    _drivetrain_reach_alone(${file} reach)
    set_property(GLOBAL PROPERTY DRIVETRAIN_REACH_${file} ${reach})  # for headers that include each other
    cmake_path(GET file PARENT_PATH folder)
    set(lines)
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE place)
    if(place MATCHES "^(tests|plugins)/")
      file(STRINGS ${file} lines REGEX "^ *# *include +[<\"][A-Za-z.]")
    endif()
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^ *# *include +[<\"]([^>\"]+)[>\"].*" "\\1" header "${line}")
      set(further standalone)
      if(header MATCHES "^(ATen|c10|torch)/")
        set(further runtime)
      else()
        _drivetrain_own_header(${header} ${folder} own)
        if(own)
          _drivetrain_reach_of(${own} further)
        endif()
      endif()
      _drivetrain_farther(${reach} ${further} reach)
    endforeach()
    set_property(GLOBAL PROPERTY DRIVETRAIN_REACH_${file} ${reach})
  endif()
  set(${out} ${reach} PARENT_SCOPE)
endfunction()

function(drivetrain_reach out)
  set(reach standalone)
  foreach(source ${ARGN})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    if(EXISTS ${source})
      _drivetrain_reach_of(${source} further)
      _drivetrain_farther(${reach} ${further} reach)
    endif()
  endforeach()
  set(${out} ${reach} PARENT_SCOPE)
endfunction()
