#include <drivetrain/context_parallel.h>

namespace drivetrain {

ContextParallel::~ContextParallel() = default;

}  // namespace drivetrain
