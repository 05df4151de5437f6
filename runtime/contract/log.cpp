#include <drivetrain/log.h>

namespace drivetrain {

Log::~Log() = default;

}  // namespace drivetrain
