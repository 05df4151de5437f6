// lib/drivetrain/commands/inspect.so
#include "report/inspect.h"
#include "shared/run_command.h"

DRIVETRAIN_COMMANDS({"inspect", drivetrain::inspect_command})
