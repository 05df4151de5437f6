// Plugins that do one wrong thing each, chosen by their options (deed.h), in one library.
#include "misdeeds/wrong_answers.h"
#include "misdeeds/wrong_compute.h"

namespace {

using namespace drivetrain;
using namespace drivetrain::misdeeds;

}  // namespace

DRIVETRAIN_PLUGINS(
    DRIVETRAIN_ENTRY(Strategy, "misdeed", WrongStrategy), DRIVETRAIN_ENTRY(Optimizer, "misdeed", WrongOptimizer),
    DRIVETRAIN_ENTRY(Dataset, "misdeed", WrongDataset), DRIVETRAIN_ENTRY(Attention, "misdeed", WrongAttention),
    DRIVETRAIN_ENTRY(Monitor, "misdeed", WrongMonitor), DRIVETRAIN_ENTRY(LrSchedule, "misdeed", WrongLrSchedule),
    DRIVETRAIN_ENTRY(Recompute, "misdeed", WrongRecompute), DRIVETRAIN_ENTRY(Precision, "misdeed", WrongPrecision),
    DRIVETRAIN_ENTRY(Schedule, "misdeed", WrongSchedule),
    DRIVETRAIN_ENTRY(CheckpointPolicy, "misdeed", WrongCheckpointPolicy),
    DRIVETRAIN_ENTRY(DataParallel, "misdeed", WrongDataParallel))
