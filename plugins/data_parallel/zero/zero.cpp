#include "zero.h"

DRIVETRAIN_PLUGIN(drivetrain::DataParallel, "zero", drivetrain::Zero)
