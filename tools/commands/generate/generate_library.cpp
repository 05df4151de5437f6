// lib/drivetrain/commands/generate.so
#include "shared/commands.h"
#include "shared/run_command.h"

DRIVETRAIN_COMMANDS({"generate", drivetrain::generate_command})
