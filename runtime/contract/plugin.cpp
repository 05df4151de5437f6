#include <drivetrain/plugin.h>

namespace drivetrain {

Plugin::~Plugin() = default;

}  // namespace drivetrain
