# drivetrain_add_plugin, shared by this tree and the installed package. Needs DrivetrainTorch.
#
#   drivetrain_add_plugin(flash KIND attention SUMMARY "LibTorch's flash kernel" SOURCES flash.cpp)
#
# makes lib/drivetrain/plugins/attention_flash.so with its manifest, an install rule, the object library
# attention_flash_objects for unit tests and, inside this tree, the test program attention_flash_test of all *_test.cpp
# beside it.
#
#   KIND kind           one of the kinds of the SDK
#   SOURCES file...     C++ (and CUDA) sources; one of them ends with DRIVETRAIN_PLUGIN(...)
#   SUMMARY text        one plain sentence for `drivetrain inspect`
#   PAPER text          where it was published: author and year, "Dao et al. 2022"
#   SECTION name        config section this plugin claims, "zero_optimization". Its value is {type, params} or an object of
#                       options; `true` is the plugin with its defaults, `false` and "enabled": false switch it off. Further forms:
#     ALIASES name...     other names of the section
#     NUMBER option       a bare number is the value of this option: "sequence_parallel_size": 4. `true` is refused then
#     ON option=value...  the options that `true` stands for
#     OFF option=value... each of these values switches the section off
#     OFF_UNLESS_ENABLED  the section is off where it does not say "enabled": true
#     AUTO device=rank... the section is on for "enabled": "auto" on these devices; of several sections of a kind with one
#                         place the one with the highest rank
#   ROUNDING            a run goes on without it, or with other options of it, with the same numbers but for rounding
#   SAME_BITS option... options that change no bit of a run's numbers, only its time or memory
#   TYPES name...       further names for the `type` of a section, "AdamW"; case does not matter
#   DEFAULT             taken when the config names none of this kind (for its DEVICE)
#   DEVICE cpu|cuda     the only device it works on; without it: any
#   CUDA                holds CUDA code: the device must be covered by CMAKE_CUDA_ARCHITECTURES
#   NCCL major          links NCCL of that major version
#   ENTRIES k:n:s...    further entries of the same library: kind, name, summary
#   LICENSE name        default MIT
#   VERSION x.y.z       default: the version of the project
#   LINK library...     further link libraries, kept private to the plugin
#   TESTS_REACH word... inside this tree: what attention_flash_test opens (REACHES of drivetrain_add_test)
#   TESTS_WAIT          inside this tree: it mostly waits (WAITS of drivetrain_add_test)

# Without a build type CMake compiles without -O, and a plugin would train several times slower than the run around it.
get_property(_multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(NOT CMAKE_BUILD_TYPE AND NOT _multi_config)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug or RelWithDebInfo" FORCE)
  message(STATUS "Drivetrain: no CMAKE_BUILD_TYPE was given; plugins are built as Release")
endif()

set(DRIVETRAIN_CMAKE_DIR ${CMAKE_CURRENT_LIST_DIR})
find_program(DRIVETRAIN_READELF readelf REQUIRED)

# What a library was built against, for the fingerprint. LibTorch's flavour is the CUDA runtime that it links.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${DRIVETRAIN_TORCH}/lib/libtorch_cpu.so)
execute_process(COMMAND ${DRIVETRAIN_READELF} -d -n -W ${DRIVETRAIN_TORCH}/lib/libtorch_cpu.so
                OUTPUT_VARIABLE _torch_facts ERROR_QUIET)
set(DRIVETRAIN_TORCH_CUDA 0)
set(_flavour cpu)
if(_torch_facts MATCHES "libcudart\\.so\\.([0-9]+)")
  set(DRIVETRAIN_TORCH_CUDA ${CMAKE_MATCH_1})
  set(_flavour cu${CMAKE_MATCH_1})
endif()
set(DRIVETRAIN_TORCH_FLAVOUR "${DRIVETRAIN_TORCH_VERSION}+${_flavour}")
set(DRIVETRAIN_TORCH_BUILD_ID none)
if(_torch_facts MATCHES "Build ID: ([0-9a-f]+)")
  set(DRIVETRAIN_TORCH_BUILD_ID ${CMAKE_MATCH_1})
endif()
if(NOT TARGET drivetrain_fingerprint)
  add_library(drivetrain_fingerprint INTERFACE)
  target_compile_definitions(drivetrain_fingerprint INTERFACE
    DRIVETRAIN_LIBTORCH="${DRIVETRAIN_TORCH_FLAVOUR}" DRIVETRAIN_LIBTORCH_BUILD_ID="${DRIVETRAIN_TORCH_BUILD_ID}")
endif()

if(NOT DRIVETRAIN_INSTALLED)  # in the package, the digest was installed with the headers
  file(GLOB _sdk_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/runtime/api/drivetrain/*.h)
  set(DRIVETRAIN_DIGEST_HEADER ${CMAKE_BINARY_DIR}/include/drivetrain/api_digest.h)
  add_custom_command(OUTPUT ${DRIVETRAIN_DIGEST_HEADER}
    COMMAND ${CMAKE_COMMAND} -DCXX=${CMAKE_CXX_COMPILER} -DHEADERS=${CMAKE_SOURCE_DIR}/runtime/api/drivetrain
            -DOUTPUT=${DRIVETRAIN_DIGEST_HEADER} -DKINDS=${CMAKE_BINARY_DIR}/DrivetrainKinds.cmake
            -DSUMS=${CMAKE_BINARY_DIR}/installed/headers.sha256 -DVERSION=${PROJECT_VERSION}
            -P ${DRIVETRAIN_CMAKE_DIR}/api_digest.cmake
    BYPRODUCTS ${CMAKE_BINARY_DIR}/DrivetrainKinds.cmake ${CMAKE_BINARY_DIR}/installed/headers.sha256
    DEPENDS ${_sdk_headers} ${DRIVETRAIN_CMAKE_DIR}/api_digest.cmake COMMENT "Digest of the SDK headers" VERBATIM)
  add_custom_target(drivetrain_api_digest DEPENDS ${DRIVETRAIN_DIGEST_HEADER})
  add_dependencies(drivetrain_fingerprint drivetrain_api_digest)
  target_include_directories(drivetrain_fingerprint INTERFACE ${CMAKE_BINARY_DIR}/include)
endif()

# One compact JSON string literal. Quotes, backslashes and control characters in it are escaped.
function(_drivetrain_json_string text out)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REGEX REPLACE "[\n\r\t]" " " text "${text}")
  set(${out} "\"${text}\"" PARENT_SCOPE)
endfunction()

# {"option":value,...} of words "option=value". A value is a number, true or false; all else is text.
function(_drivetrain_json_options name keyword words out)
  set(options)
  foreach(word IN LISTS words)
    if(NOT word MATCHES "^([A-Za-z][A-Za-z0-9_]*)=(.+)$")
      message(FATAL_ERROR "drivetrain_add_plugin(${name}): ${keyword} wants option=value, found \"${word}\"")
    endif()
    set(option ${CMAKE_MATCH_1})
    set(value "${CMAKE_MATCH_2}")
    if(NOT value MATCHES "^(true|false|-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][-+]?[0-9]+)?)$")
      _drivetrain_json_string("${value}" value)
    endif()
    list(APPEND options "\"${option}\":${value}")
  endforeach()
  list(JOIN options "," options)
  set(${out} "{${options}}" PARENT_SCOPE)
endfunction()

# The forms of a section as one JSON object, from the ARG_ variables of drivetrain_add_plugin; empty where it has none.
function(_drivetrain_section_form name out)
  set(forms)
  if(NOT "${ARG_ALIASES}" STREQUAL "")
    list(JOIN ARG_ALIASES "\",\"" aliases)
    list(APPEND forms "\"aliases\":[\"${aliases}\"]")
  endif()
  if(NOT "${ARG_NUMBER}" STREQUAL "")  # an option may be named "n" or "off"
    list(APPEND forms "\"number\":\"${ARG_NUMBER}\"")
  endif()
  foreach(keyword ON OFF AUTO)
    if(ARG_${keyword})
      _drivetrain_json_options(${name} ${keyword} "${ARG_${keyword}}" options)
      string(TOLOWER ${keyword} key)
      list(APPEND forms "\"${key}\":${options}")
    endif()
  endforeach()
  if(ARG_OFF_UNLESS_ENABLED)
    list(APPEND forms "\"off_unless_enabled\":true")
  endif()
  if(forms AND NOT ARG_SECTION)
    message(FATAL_ERROR "drivetrain_add_plugin(${name}): ALIASES, NUMBER, ON, OFF, AUTO and OFF_UNLESS_ENABLED belong to a SECTION")
  endif()
  list(JOIN forms "," form)
  set(${out} "${form}" PARENT_SCOPE)
endfunction()

# The manifest without its fingerprint and closing brace, from the ARG_ variables of drivetrain_add_plugin.
function(_drivetrain_manifest name out)
  _drivetrain_json_string("${ARG_KIND}_${name}" library)
  _drivetrain_json_string("${ARG_VERSION}" version)
  _drivetrain_json_string("${ARG_LICENSE}" licence)
  _drivetrain_json_string("${ARG_SUMMARY}" summary)
  set(entry "{\"kind\":\"${ARG_KIND}\",\"name\":\"${name}\",\"summary\":${summary}")
  if(ARG_PAPER)
    _drivetrain_json_string("${ARG_PAPER}" paper)
    string(APPEND entry ",\"paper\":${paper}")
  endif()
  if(ARG_SECTION)
    string(APPEND entry ",\"section\":\"${ARG_SECTION}\"")
  endif()
  _drivetrain_section_form(${name} form)
  if(form)
    string(APPEND entry ",\"section_form\":{${form}}")
  endif()
  if(ARG_TYPES)
    list(JOIN ARG_TYPES "\",\"" types)
    string(APPEND entry ",\"types\":[\"${types}\"]")
  endif()
  if(ARG_ROUNDING)
    string(APPEND entry ",\"rounding\":true")
  endif()
  if(ARG_SAME_BITS)
    list(JOIN ARG_SAME_BITS "\",\"" options)
    string(APPEND entry ",\"same_bits\":[\"${options}\"]")
  endif()
  if(ARG_DEVICE)
    string(APPEND entry ",\"device\":\"${ARG_DEVICE}\"")
  endif()
  if(ARG_DEFAULT)
    string(APPEND entry ",\"default\":true")
  endif()
  if(ARG_CUDA)
    set(cuda ",\"uses_cuda\":true")
  endif()
  set(entries "${entry}${cuda}}")
  foreach(further IN LISTS ARG_ENTRIES)
    if(NOT further MATCHES "^([a-z0-9_]+):([a-z0-9_]+):(.*)$")
      message(FATAL_ERROR "drivetrain_add_plugin(${name}): ENTRIES wants \"kind:name:summary\", found \"${further}\"")
    endif()
    _drivetrain_json_string("${CMAKE_MATCH_3}" summary)
    string(APPEND entries ",{\"kind\":\"${CMAKE_MATCH_1}\",\"name\":\"${CMAKE_MATCH_2}\",\"summary\":${summary}${cuda}}")
  endforeach()
  set(${out} "{\"library\":${library},\"version\":${version},\"licence\":${licence},\"entries\":[${entries}]"
      PARENT_SCOPE)
endfunction()

# What nvcc makes of CMAKE_CUDA_ARCHITECTURES: 90 is machine code and PTX, 90-real and 90-virtual are one of them.
function(_drivetrain_cuda_code out)
  set(code)
  foreach(architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
    string(REGEX REPLACE "-.*" "" number ${architecture})
    if(NOT architecture MATCHES "-virtual$")
      list(APPEND code sm_${number})
    endif()
    if(NOT architecture MATCHES "-real$")
      list(APPEND code compute_${number})
    endif()
  endforeach()
  list(JOIN code " " code)
  set(${out} "${code}" PARENT_SCOPE)
endfunction()

function(drivetrain_add_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "DEFAULT;CUDA;OFF_UNLESS_ENABLED;ROUNDING;TESTS_WAIT"
                        "KIND;SUMMARY;PAPER;SECTION;NUMBER;DEVICE;LICENSE;VERSION;NCCL"
                        "SOURCES;TYPES;ENTRIES;LINK;ALIASES;ON;OFF;AUTO;SAME_BITS;TESTS_REACH")
  if(ARG_UNPARSED_ARGUMENTS OR NOT ARG_KIND OR NOT ARG_SOURCES)
    message(FATAL_ERROR "drivetrain_add_plugin(${name}): KIND and SOURCES are needed; not understood: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT "${ARG_KIND}/${name}" MATCHES "^[a-z0-9_]+/[a-z0-9_]+$")
    message(FATAL_ERROR "drivetrain_add_plugin(${name}): kind and name are lower case, digits and _; found ${ARG_KIND}/${name}")
  endif()
  if(NOT ARG_LICENSE)
    set(ARG_LICENSE MIT)
  endif()
  if(NOT ARG_VERSION)
    set(ARG_VERSION ${PROJECT_VERSION})
  endif()
  if(NOT ARG_VERSION)  # a project without a version
    set(ARG_VERSION 0.0.0)
  endif()

  set(library ${ARG_KIND}_${name})
  _drivetrain_manifest(${name} manifest)
  configure_file(${DRIVETRAIN_CMAKE_DIR}/manifest.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/${library}_manifest.cpp @ONLY)

  set(batch 8)
  if(NOT DRIVETRAIN_INSTALLED)
    # A source that opens our namespace for itself would open it for LibTorch's headers behind it, where names clash: it is
    # compiled alone. Those that the first run waits for are compiled in fewest pieces, where it comes last.
    set(openers)
    foreach(source ${ARG_SOURCES})
      file(STRINGS ${source} opens REGEX "^using namespace")
      if(opens)
        list(APPEND openers ${source})
      endif()
    endforeach()
    if(library IN_LIST quickstart_plugins)
      set(batch 16)
      list(TRANSFORM ARG_LINK REPLACE "^Drivetrain::toolkit$" drivetrain_toolkit_first)
      list(REMOVE_ITEM ARG_SOURCES "" ${openers})
      list(APPEND ARG_SOURCES ${openers})
    elseif(openers)
      set_source_files_properties(${openers} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endif()
  add_library(${library}_objects OBJECT ${ARG_SOURCES} ${CMAKE_CURRENT_BINARY_DIR}/${library}_manifest.cpp)
  set_target_properties(${library}_objects PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
    CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON CUDA_RUNTIME_LIBRARY Shared)
  target_compile_features(${library}_objects PUBLIC cxx_std_20)
  if(NOT DRIVETRAIN_INSTALLED)
    # LibTorch's headers cost every source seconds, so a plugin of this tree is compiled in few pieces.
    drivetrain_precompile(${library}_objects)
    set_target_properties(${library}_objects PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
    set_source_files_properties(${CMAKE_CURRENT_BINARY_DIR}/${library}_manifest.cpp PROPERTIES
      SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
  endif()
  target_link_libraries(${library}_objects PUBLIC Drivetrain::sdk ${ARG_LINK} PRIVATE drivetrain_fingerprint)
  if(TARGET drivetrain_warnings)
    target_link_libraries(${library}_objects PRIVATE drivetrain_warnings)
  endif()
  if(ARG_CUDA)
    _drivetrain_cuda_code(architectures)
    target_compile_definitions(${library}_objects PRIVATE DRIVETRAIN_CUDA_RUNTIME=${DRIVETRAIN_TORCH_CUDA}
      DRIVETRAIN_CUDA_ARCHITECTURES="${architectures}")
  endif()
  if(ARG_NCCL)
    target_compile_definitions(${library}_objects PRIVATE DRIVETRAIN_NCCL=${ARG_NCCL})
  endif()

  # The version script hides everything but the alias, inline variables and static archives included.
  add_library(${library} MODULE)
  target_link_libraries(${library} PRIVATE ${library}_objects)
  target_link_options(${library} PRIVATE -Wl,-z,defs -Wl,-z,nodelete -Wl,--build-id -Wl,--exclude-libs,ALL
    -Wl,--version-script=${DRIVETRAIN_CMAKE_DIR}/plugin_exports.map)
  set_target_properties(${library} PROPERTIES PREFIX "" LINKER_LANGUAGE CXX CUDA_RUNTIME_LIBRARY Shared
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/drivetrain/plugins INSTALL_RPATH "\$ORIGIN/../..")
  # A plugin without its door is found here rather than by whoever tries to use it.
  add_custom_command(TARGET ${library} POST_BUILD VERBATIM COMMAND ${CMAKE_COMMAND} -DREADELF=${DRIVETRAIN_READELF}
    -DLIBRARY=$<TARGET_FILE:${library}> -P ${DRIVETRAIN_CMAKE_DIR}/check_door.cmake)
  set_property(GLOBAL APPEND PROPERTY DRIVETRAIN_PLUGINS ${library})
  install(TARGETS ${library} LIBRARY DESTINATION lib/drivetrain/plugins)

  if(NOT DRIVETRAIN_INSTALLED)
    file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cpp)
    list(FILTER tests EXCLUDE REGEX "_gpu_test\\.cpp$")  # programs of their own
    if(tests)
      if(NOT ARG_TESTS_REACH)
        set(ARG_TESTS_REACH commands)
      endif()
      set(waits)
      if(ARG_TESTS_WAIT)
        set(waits WAITS)
      endif()
      drivetrain_add_test(${library}_test ${tests} ${waits} REACHES ${ARG_TESTS_REACH})
      target_link_libraries(${library}_test PRIVATE ${library}_objects)
    endif()
  endif()
endfunction()
