// lib/drivetrain/commands/plan.so
#include "shared/commands.h"
#include "shared/run_command.h"

DRIVETRAIN_COMMANDS({"plan", drivetrain::plan_command})
