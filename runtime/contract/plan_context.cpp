#include <drivetrain/plan_context.h>

namespace drivetrain {

PlanContext::~PlanContext() = default;

double ModelFacts::flops_per_token(double S) const {
  double flops = flops_per_token_fixed + flops_per_token_S * S;
  for (const Windowed& layers : windowed) {
    const auto w = static_cast<double>(layers.window);
    flops += layers.flops_per_token_S * (w < S ? 2 * w - w * w / S : S);
  }
  return flops;
}

}  // namespace drivetrain
