# Writes OUTPUT, a C++ source with the door (common/cuda_door.h) of every CUDA function that a header below FOLDER
# declares, and NAMES, one with the address of each: the CUDA library does not link where a declared one was not written.
# Run at build time: cmake -DFOLDER=kernels -DOUTPUT=... -DNAMES=... -P cuda_doors.cmake
file(GLOB headers ${FOLDER}/*/*.h)
set(includes)
set(doors)
set(names)
foreach(header IN LISTS headers)
  file(READ ${header} text)
  string(REGEX MATCHALL "DRIVETRAIN_KERNEL[ \n]+(int|bool)[ \n]+[a-z0-9_]+_cuda\\([^)]*\\)" declared "${text}")
  if(declared)
    string(APPEND includes "#include \"${header}\"\n")
  endif()
  foreach(function IN LISTS declared)
    string(REGEX REPLACE "[ \n]+" " " function "${function}")
    string(REGEX MATCH "^DRIVETRAIN_KERNEL (.* ([a-z0-9_]+))\\((.*)\\)$" whole "${function}")
    set(function ${CMAKE_MATCH_1})
    set(name ${CMAKE_MATCH_2})
    string(REGEX REPLACE "&(,|$)" "& op\\1" parameters "${CMAKE_MATCH_3}")  # the one that has no name
    string(REGEX REPLACE "[^,]*[ *&]([a-z]+)(,|$)" "\\1\\2" arguments "${parameters}")
    string(APPEND doors "${function}(${parameters}) { return behind<&${name}>(${arguments}); }\n")
    string(APPEND names "    reinterpret_cast<void*>(&${name}),\n")
  endforeach()
endforeach()
file(WRITE ${OUTPUT} "#include \"kernels/common/cuda_door.h\"\n${includes}\nnamespace drivetrain::kernels {\n\n${doors}\n}\n")
file(WRITE ${NAMES} "${includes}\nnamespace drivetrain::kernels {\n\nextern void* const cuda_functions[];\n"
  "void* const cuda_functions[] = {\n${names}};\n\n}\n")
