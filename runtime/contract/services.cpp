#include <drivetrain/services.h>

namespace drivetrain {

PluginMaker::~PluginMaker() = default;

}  // namespace drivetrain
