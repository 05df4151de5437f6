// lib/drivetrain/commands/checkpoint.so
#include "shared/commands.h"
#include "shared/run_command.h"

DRIVETRAIN_COMMANDS({"checkpoint convert", drivetrain::convert_command}, {"checkpoint", drivetrain::checkpoint_command})
