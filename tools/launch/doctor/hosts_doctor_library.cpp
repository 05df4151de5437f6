// lib/drivetrain/commands/hosts_doctor.so
#include <drivetrain/export.h>

#include "launch/doctor/hosts_doctor.h"

extern "C" DRIVETRAIN_API const char* drivetrain_release() { return DRIVETRAIN_RELEASE; }
extern "C" DRIVETRAIN_API int drivetrain_run(const drivetrain::cli::Arguments& arguments) {
  return drivetrain::program::hosts_doctor(arguments);
}
