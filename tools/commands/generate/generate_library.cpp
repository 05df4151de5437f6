// lib/drivetrain/commands/generate.so, and evaluate.so, which is a link to it.
#include "shared/commands.h"
#include "shared/run_command.h"

DRIVETRAIN_COMMANDS({"generate", drivetrain::generate_command}, {"evaluate", drivetrain::evaluate_command})
