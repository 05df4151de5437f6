// lib/drivetrain/commands/config.so
#include "shared/commands.h"
#include "shared/run_command.h"

DRIVETRAIN_COMMANDS({"config", drivetrain::config_command})
