#include <drivetrain/lr_schedule.h>

namespace drivetrain {

LrSchedule::~LrSchedule() = default;

}  // namespace drivetrain
