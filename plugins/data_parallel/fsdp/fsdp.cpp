#include "fsdp.h"

DRIVETRAIN_PLUGIN(drivetrain::DataParallel, "fsdp", drivetrain::Fsdp)
