// lib/drivetrain/commands/study.so
#include <drivetrain/export.h>

#include "study/study_command.h"

extern "C" DRIVETRAIN_API const char* drivetrain_release() { return DRIVETRAIN_RELEASE; }
extern "C" DRIVETRAIN_API int drivetrain_run(const drivetrain::cli::Arguments& arguments) {
  return drivetrain::study::study_command(arguments);
}
