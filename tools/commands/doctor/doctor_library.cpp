// lib/drivetrain/commands/doctor.so
#include "shared/commands.h"
#include "shared/run_command.h"

DRIVETRAIN_COMMANDS({"doctor", drivetrain::doctor_command})
