// lib/drivetrain/commands/train.so
#include "shared/commands.h"
#include "shared/run_command.h"

DRIVETRAIN_COMMANDS({"train", drivetrain::train_command})
