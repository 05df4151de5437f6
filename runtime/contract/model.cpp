#include <drivetrain/model.h>

namespace drivetrain {

Model::~Model() = default;

}  // namespace drivetrain
