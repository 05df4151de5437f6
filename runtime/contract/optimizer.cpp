#include <drivetrain/optimizer.h>

namespace drivetrain {

StateVisitor::~StateVisitor() = default;
Optimizer::~Optimizer() = default;

}  // namespace drivetrain
