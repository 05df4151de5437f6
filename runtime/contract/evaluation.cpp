#include <drivetrain/evaluation.h>

namespace drivetrain {

Evaluation::~Evaluation() = default;

}  // namespace drivetrain
