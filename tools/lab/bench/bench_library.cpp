// lib/drivetrain/commands/bench.so
#include "shared/commands.h"
#include "shared/run_command.h"

DRIVETRAIN_COMMANDS({"bench", drivetrain::bench_command})
