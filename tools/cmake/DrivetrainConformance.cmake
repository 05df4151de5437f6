# drivetrain_add_conformance_test, of the installed package.
#
#   enable_testing()
#   drivetrain_add_plugin(flash KIND attention SOURCES flash.cpp)
#   drivetrain_add_conformance_test(flash KIND attention OPTIONS "{\"verbose\": true}")
#
# makes the CTest test conformance.attention.flash: the suite of its kind over this plugin, by the installed program
# drivetrain-conformance.
#
#   KIND kind           of the plugin, as for drivetrain_add_plugin
#   OPTIONS json        options of the plugin; {} without it
#   RANKS_MULTIPLE n    its options allow numbers of ranks that n divides
#   LIBRARY target      that offers it; default KIND_NAME, as drivetrain_add_plugin(NAME KIND ...) makes it
function(drivetrain_add_conformance_test name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "KIND;OPTIONS;RANKS_MULTIPLE;LIBRARY" "")
  if(ARG_UNPARSED_ARGUMENTS OR NOT ARG_KIND)
    message(FATAL_ERROR "drivetrain_add_conformance_test(${name}): KIND is needed; not understood: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_LIBRARY)
    set(ARG_LIBRARY ${ARG_KIND}_${name})
  endif()
  set(program ${DRIVETRAIN_PREFIX}/bin/drivetrain-conformance)
  if(NOT EXISTS ${program})
    message(FATAL_ERROR "drivetrain_add_conformance_test(${name}): ${program} is not there. The installed build had no "
                        "tests: build everything (cmake --build), then install again.")
  endif()
  set(words $<TARGET_FILE:${ARG_LIBRARY}> ${ARG_KIND}/${name})
  if(ARG_OPTIONS)
    list(APPEND words --options "${ARG_OPTIONS}")
  endif()
  if(ARG_RANKS_MULTIPLE)
    list(APPEND words --ranks-multiple ${ARG_RANKS_MULTIPLE})
  endif()
  add_test(NAME conformance.${ARG_KIND}.${name} COMMAND ${program} ${words})
endfunction()
