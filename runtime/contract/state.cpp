#include <drivetrain/state.h>

namespace drivetrain {

StateVisitor::~StateVisitor() = default;

}  // namespace drivetrain
