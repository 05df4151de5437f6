#include <drivetrain/store.h>

namespace drivetrain {

Store::~Store() = default;

}  // namespace drivetrain
