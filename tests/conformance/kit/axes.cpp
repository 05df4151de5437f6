#include <drivetrain/testkit/kit/axes.h>

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain::test {
namespace {

std::string problems_of(const PlanRecord& context) {
  std::string problems;
  for (const auto& refusal : context.refusals()) problems += concat("\n", refusal.by, ": ", refusal.text);
  const auto& offers = context.offers();
  const auto offered = [&](const std::string& ability) {
    return ability == PlanContext::kWholePositions ||  // by the runtime itself
           std::any_of(offers.begin(), offers.end(), [&](const auto& offer) { return offer.text == ability; });
  };
  for (const auto& need : context.needs())
    if (!offered(need.ability))
      problems += concat("\n", need.by, " needs ", need.ability, " (", need.why, "), which nobody offers here");
    else if (!need.taken_by.empty())
      problems += concat("\n", need.by, " needs ", need.ability, " (", need.why, "), which ", need.taken_by,
                         " takes away (", need.taken_why, ")");
  return problems;
}

}  // namespace

std::vector<Axis> axes_of(const PlanRecord& context) {
  const std::string problems = problems_of(context);
  if (!problems.empty()) throw fail(ErrorCode::config, "plan does not allow this run:", problems);
  std::vector<PlanRecord::Claim> claims = context.claims();
  std::stable_sort(claims.begin(), claims.end(), [](const auto& a, const auto& b) { return a.place < b.place; });
  const int64_t world = context.run().world_size;
  int64_t fixed = 1, product = 1;
  for (const auto& claim : claims) fixed *= claim.size == PlanContext::kRest ? 1 : claim.size;
  std::vector<Axis> axes;
  for (const auto& claim : claims) {
    axes.push_back(
        {claim.axis, claim.size == PlanContext::kRest ? world / fixed : claim.size, 0, claim.joins_gradients()});
    product *= axes.back().size;
  }
  if (product != world)
    throw fail(ErrorCode::config, "the axes that plan claims have ", product, " ranks together, and there are ", world);
  return axes;
}

}  // namespace drivetrain::test
