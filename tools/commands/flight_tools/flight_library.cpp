// lib/drivetrain/commands/flight.so
#include "shared/commands.h"
#include "shared/run_command.h"

DRIVETRAIN_COMMANDS({"flight", drivetrain::flight_command})
