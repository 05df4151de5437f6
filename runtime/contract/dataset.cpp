#include <drivetrain/dataset.h>

namespace drivetrain {

Dataset::~Dataset() = default;

}  // namespace drivetrain
