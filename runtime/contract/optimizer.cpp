#include <drivetrain/optimizer.h>

namespace drivetrain {

Optimizer::~Optimizer() = default;

}  // namespace drivetrain
