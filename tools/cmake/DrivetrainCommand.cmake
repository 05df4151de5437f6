# drivetrain_command_part and drivetrain_plain_part, for tools/commands and tools/lab.
#
# Each folder is one part, an archive of unity files; each source X_library.cpp in it is a library, lib/drivetrain/commands/X.so, which
# the program opens for `drivetrain X` and for no other command. Parts see the runtime's insides, as far as these are marked
# DRIVETRAIN_INTERNAL.
set(DRIVETRAIN_COMMAND_INCLUDES ${CMAKE_SOURCE_DIR}/runtime/api ${CMAKE_SOURCE_DIR}/runtime ${CMAKE_SOURCE_DIR}/plugins/toolkit/api
  ${CMAKE_SOURCE_DIR}/tools/commands ${CMAKE_SOURCE_DIR}/tools/lab)

# drivetrain_place_command(NAME): command_NAME becomes lib/drivetrain/commands/NAME.so.
function(drivetrain_place_command name)
  target_link_options(command_${name} PRIVATE -Wl,-z,defs -Wl,--disable-new-dtags -Wl,--exclude-libs,ALL -Wl,--gc-sections)
  set_target_properties(command_${name} PROPERTIES PREFIX "" OUTPUT_NAME ${name}
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/drivetrain/commands INSTALL_RPATH "\$ORIGIN/../..;${DRIVETRAIN_TORCH}/lib")
  install(TARGETS command_${name} LIBRARY DESTINATION lib/drivetrain/commands OPTIONAL)  # the first build has some alone
  set_property(GLOBAL APPEND PROPERTY DRIVETRAIN_COMMANDS command_${name})
endfunction()

# drivetrain_plain_part(FOLDER [LINK library...]): a part that needs no LibTorch.
function(drivetrain_plain_part name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  add_library(drivetrain_${name} STATIC ${sources})
  set_target_properties(drivetrain_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  drivetrain_compile_lightly(drivetrain_${name})
  target_include_directories(drivetrain_${name} PRIVATE ${DRIVETRAIN_COMMAND_INCLUDES})
  target_link_libraries(drivetrain_${name} PRIVATE drivetrain_warnings ${ARG_LINK})
endfunction()

# drivetrain_command_part(FOLDER [LIGHT] [SOURCES file...] [INCLUDES folder...] [USES part...] [LINK library...]): a part, and the libraries
# of its commands. LIGHT: it runs once in a command. SOURCES: further ones.
function(drivetrain_command_part name)
  cmake_parse_arguments(ARG "LIGHT" "" "SOURCES;INCLUDES;USES;LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  set(libraries ${sources})
  list(FILTER libraries INCLUDE REGEX "_library\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "_library\\.cpp$")
  add_library(drivetrain_${name} STATIC ${sources} ${ARG_SOURCES})
  set_target_properties(drivetrain_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  if(ARG_LIGHT)
    drivetrain_compile_lightly(drivetrain_${name})
  endif()
  target_include_directories(drivetrain_${name} PRIVATE ${DRIVETRAIN_COMMAND_INCLUDES} ${ARG_INCLUDES})
  list(TRANSFORM ARG_USES PREPEND drivetrain_)
  target_link_libraries(drivetrain_${name} PRIVATE drivetrain_warnings ${ARG_LINK}
    PUBLIC ${ARG_USES} drivetrain_cli drivetrain drivetrain_toolkit_first drivetrain_kernels TBB::tbb OpenSSL::Crypto)
  # Each library carries what it uses of its parts, and no more.
  target_compile_options(drivetrain_${name} PRIVATE -ffunction-sections -fdata-sections)
  drivetrain_precompile(drivetrain_${name})
  set_property(GLOBAL APPEND PROPERTY DRIVETRAIN_COMMAND_PARTS drivetrain_${name})
  foreach(source ${libraries})
    get_filename_component(command ${source} NAME)
    string(REPLACE "_library.cpp" "" command ${command})
    add_library(command_${command} MODULE ${source})
    target_compile_definitions(command_${command} PRIVATE DRIVETRAIN_RELEASE="${PROJECT_VERSION}")
    target_include_directories(command_${command} PRIVATE ${DRIVETRAIN_COMMAND_INCLUDES})
    # All of its own part: a source may make itself known by a variable that nobody refers to, as benchmarks of kernels do.
    target_link_libraries(command_${command} PRIVATE drivetrain_warnings $<LINK_LIBRARY:WHOLE_ARCHIVE,drivetrain_${name}>)
    drivetrain_place_command(${command})
  endforeach()
endfunction()

# drivetrain_command_link(NAME COMMAND): what COMMAND's library has for `drivetrain NAME` too is found under that name.
function(drivetrain_command_link name command)
  set(link ${CMAKE_BINARY_DIR}/lib/drivetrain/commands/${name}.so)
  add_custom_command(TARGET command_${command} POST_BUILD VERBATIM
    COMMAND ${CMAKE_COMMAND} -E create_symlink ${command}.so ${link})
  install(FILES ${link} DESTINATION lib/drivetrain/commands OPTIONAL)
endfunction()

# drivetrain_text_include(FILE NAME): a JSON file as one string literal, NAME.inc in the folder `generated`.
function(drivetrain_text_include file name)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/generated/${name}.inc CONTENT "R\"json(${text})json\"\n" @ONLY)
endfunction()
