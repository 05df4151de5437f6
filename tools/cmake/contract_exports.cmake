# Writes OUTPUT, a linker version script that exports what the contract's bodies define and nothing else.
# Run at build time: cmake -DREADELF=readelf -DOBJECTS=a.o|b.o -DOUTPUT=... -P contract_exports.cmake
# The file is touched only when its content changes.
string(REPLACE "|" ";" objects "${OBJECTS}")
set(names)
foreach(object ${objects})
  execute_process(COMMAND ${READELF} --symbols --wide ${object} OUTPUT_VARIABLE symbols RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "contract_exports: ${READELF} cannot read ${object}")
  endif()
  # "  12: 0000 8 OBJECT WEAK DEFAULT 34 _ZTVN10drivetrain5StoreE": defined here, visible, one of ours
  string(REGEX MATCHALL "(GLOBAL|WEAK|UNIQUE) +DEFAULT +[0-9]+ +_Z[A-Za-z0-9_]*10drivetrain[A-Za-z0-9_]*" found "${symbols}")
  list(TRANSFORM found REPLACE ".* " "")
  list(APPEND names ${found})
endforeach()
list(REMOVE_DUPLICATES names)
list(SORT names)
if(NOT names)
  message(FATAL_ERROR "contract_exports: the contract's objects define no symbol: ${OBJECTS}")
endif()
list(JOIN names ";\n    " text)
# drivetrain_run and drivetrain_current_call: what the program asks for by name.
file(WRITE ${OUTPUT}.new "{\n  global:\n    drivetrain_*;\n    ${text};\n  local: *;\n};\n")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
file(REMOVE ${OUTPUT}.new)
