#include <drivetrain/schedule.h>

namespace drivetrain {

Schedule::~Schedule() = default;

}  // namespace drivetrain
