# Writes OUTPUT, a header with the digest of every contract header in HEADERS (a folder), without comments and white
# space, and with the SDK release VERSION.
# Run at build time: cmake -DCXX=g++ -DHEADERS=... -DOUTPUT=... -DVERSION=... -P api_digest.cmake
# The file is touched only when its content changes, so an edited comment recompiles no plugin's manifest.
file(GLOB headers ${HEADERS}/*.h)
list(SORT headers)
set(digests "")
foreach(header IN LISTS headers)
  get_filename_component(name ${header} NAME)
  # -fpreprocessed: drop comments as the language defines them, expand and include nothing.
  execute_process(COMMAND ${CXX} -w -x c++ -std=c++20 -fpreprocessed -dD -E -P ${header}
                  OUTPUT_VARIABLE content RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "api_digest: ${CXX} cannot read ${header}")
  endif()
  string(REGEX REPLACE "[ \t\r\n]+" "" content "${content}")
  string(SHA256 digest "${content}")
  string(SUBSTRING ${digest} 0 16 digest)
  list(APPEND digests "  \"\\\"${name}\\\":\\\"${digest}\\\"")
endforeach()
list(JOIN digests ",\" \\\n" digests)
set(content "// Generated from the contract's headers. Do not edit.\n#pragma once\n")
string(APPEND content "#define DRIVETRAIN_API_DIGESTS \\\n${digests}\"\n#define DRIVETRAIN_SDK_VERSION \"${VERSION}\"\n")
file(WRITE ${OUTPUT}.new "${content}")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
file(REMOVE ${OUTPUT}.new)
