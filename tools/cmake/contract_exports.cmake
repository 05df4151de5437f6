# Writes OUTPUT, a linker version script: DRIVETRAIN is what the contract's bodies define, DRIVETRAIN_PRIVATE whatever else of
# ours is visible, that is marked DRIVETRAIN_INTERNAL. The rest is hidden.
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
# drivetrain_current_call and others: what the program asks for by name. Names of functions, classes (vtable, type and its
# name) and of what calls through a second base begin so; templates of the standard library for types of ours do not.
file(WRITE ${OUTPUT}.new "DRIVETRAIN {\n  global:\n    drivetrain_*;\n    ${text};\n};\n"
  "DRIVETRAIN_PRIVATE {\n  global:\n    _ZN10drivetrain*; _ZNK10drivetrain*; _ZT[ISTV]N10drivetrain*;\n"
  "    _ZTh*_N*10drivetrain*; _ZTv*_N*10drivetrain*; _ZGVZ*N10drivetrain*; _ZZN*10drivetrain*;\n  local: *;\n};\n")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
file(REMOVE ${OUTPUT}.new)
