// lib/drivetrain/commands/evaluate.so
#include "shared/commands.h"
#include "shared/run_command.h"

DRIVETRAIN_COMMANDS({"evaluate", drivetrain::evaluate_command})
