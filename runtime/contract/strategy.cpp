#include <drivetrain/strategy.h>

namespace drivetrain {

Strategy::~Strategy() = default;

}  // namespace drivetrain
