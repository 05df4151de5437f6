#include <drivetrain/plan_context.h>

namespace drivetrain {

PlanContext::~PlanContext() = default;

}  // namespace drivetrain
