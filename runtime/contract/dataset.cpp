#include <drivetrain/dataset.h>

namespace drivetrain {

Documents::~Documents() = default;
Dataset::~Dataset() = default;

}  // namespace drivetrain
