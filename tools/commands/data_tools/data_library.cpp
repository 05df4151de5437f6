// lib/drivetrain/commands/data.so
#include "shared/commands.h"
#include "shared/run_command.h"

DRIVETRAIN_COMMANDS({"data", drivetrain::data_command})
