# Fails, and removes the library, if a plugin was built from sources that never say DRIVETRAIN_PLUGIN.
execute_process(COMMAND ${READELF} --dyn-syms -W ${LIBRARY} OUTPUT_VARIABLE symbols RESULT_VARIABLE failed ERROR_QUIET)
if(failed EQUAL 0 AND NOT symbols MATCHES "drivetrain_plugin")
  file(REMOVE ${LIBRARY})
  get_filename_component(name ${LIBRARY} NAME)
  message(FATAL_ERROR "${name}: its source has no DRIVETRAIN_PLUGIN(KIND, NAME, CLASS); one source of a plugin ends with it")
endif()
