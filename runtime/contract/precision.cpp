#include <drivetrain/precision.h>

namespace drivetrain {

Precision::~Precision() = default;

}  // namespace drivetrain
