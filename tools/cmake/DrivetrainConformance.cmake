# drivetrain_add_conformance_test and drivetrain_add_training_test, of the installed package.
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

# A whole run of a config with the plugin, by the installed program: the CTest test training.KIND.NAME.
#
#   drivetrain_add_training_test(flash KIND attention CONFIG run.json RANKS 2)
#
#   KIND kind           of the plugin
#   CONFIG file         relative to the current source folder
#   RANKS n             how many ranks; 1 without it
#   LIBRARY target      that offers it; default KIND_NAME
function(drivetrain_add_training_test name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "KIND;CONFIG;RANKS;LIBRARY" "")
  if(ARG_UNPARSED_ARGUMENTS OR NOT ARG_KIND OR NOT ARG_CONFIG)
    message(FATAL_ERROR "drivetrain_add_training_test(${name}): KIND and CONFIG are needed; not understood: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_LIBRARY)
    set(ARG_LIBRARY ${ARG_KIND}_${name})
  endif()
  if(NOT ARG_RANKS)
    set(ARG_RANKS 1)
  endif()
  # A folder that holds a run is never overwritten: the one of an earlier test goes first.
  set(run ${CMAKE_CURRENT_BINARY_DIR}/training.${ARG_KIND}.${name})
  add_test(NAME training.${ARG_KIND}.${name} COMMAND sh -c "rm -rf \"$0\" && exec \"$@\"" ${run}
    ${DRIVETRAIN_PREFIX}/bin/drivetrain launch -n ${ARG_RANKS} ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_CONFIG}
    --plugin-path $<TARGET_FILE_DIR:${ARG_LIBRARY}> --set output_dir=${run})
endfunction()
