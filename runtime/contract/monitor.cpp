#include <drivetrain/monitor.h>

namespace drivetrain {

Monitor::~Monitor() = default;

}  // namespace drivetrain
