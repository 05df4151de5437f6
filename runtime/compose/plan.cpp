#include "compose/plan.h"

#include <algorithm>
#include <map>

namespace drivetrain {
namespace {

std::string who(const std::string& by) { return by.empty() ? "" : by + ": "; }

void report_refusals(const PlanContext& context, const PlaceOf& place_of, Problems& problems) {
  for (const auto& refusal : context.refusals())
    problems.add(place_of(refusal.by), who(refusal.by) + refusal.text);
  for (const auto& need : context.needs()) {
    const auto& offers = context.offers();
    if (std::any_of(offers.begin(), offers.end(), [&](const auto& offer) { return offer.text == need.ability; })) continue;
    problems.add(place_of(need.by), concat(who(need.by), "needs ", need.ability, " (", need.why, "), which no chosen plugin offers"));
  }
}

bool is_data_parallel(const std::string& by) { return by.rfind("data_parallel/", 0) == 0; }

// The world size without the fixed claims, for the one claim that takes the rest.
int64_t rest_of_world(const PlanContext& context, Problems& problems) {
  int64_t fixed = 1;
  std::string text;
  for (const auto& claim : context.claims()) {
    if (claim.size == PlanContext::kRest) continue;
    fixed *= claim.size;
    text += (text.empty() ? "" : " x ") + concat(claim.axis, " ", claim.size, " (", claim.by, ")");
  }
  if (context.run().world_size % fixed == 0) return context.run().world_size / fixed;
  problems.add({}, concat(text, " = ", fixed, " ranks does not divide the world of ", context.run().world_size,
                          " ranks. Start a multiple of ", fixed, " (launch -n), or change the sizes"));
  return 1;
}

}  // namespace

int64_t MeshPlan::batch_ranks() const {
  int64_t product = 1;
  for (const Axis& axis : axes)
    if (std::find(batch_axes.begin(), batch_axes.end(), axis.name) != batch_axes.end()) product *= axis.size;
  return product;
}

MeshPlan solve_mesh(const PlanContext& context, const PlaceOf& place_of, Problems& problems) {
  report_refusals(context, place_of, problems);
  std::vector<PlanContext::Claim> claims = context.claims();
  std::stable_sort(claims.begin(), claims.end(), [](const auto& a, const auto& b) { return a.place < b.place; });

  MeshPlan plan;
  std::map<std::string, std::string> owners;
  std::string rest_owner;
  const int64_t rest = rest_of_world(context, problems);
  int64_t product = 1;
  for (const auto& claim : claims) {
    if (const auto [it, added] = owners.emplace(claim.axis, claim.by); !added) {
      problems.add({}, concat("axis ", claim.axis, " is claimed by ", it->second, " and by ", claim.by, "; use one of them"));
      continue;
    }
    if (claim.size == PlanContext::kRest) {
      if (!rest_owner.empty()) {
        problems.add({}, concat(rest_owner, " and ", claim.by, " both take the rest of the world; give one of them a size"));
        continue;
      }
      rest_owner = claim.by;
    }
    Axis axis;
    axis.name = claim.axis;
    axis.size = claim.size == PlanContext::kRest ? rest : claim.size;
    axis.joins_gradients = claim.joins_gradients;
    product *= axis.size;
    plan.axes.push_back(axis);
    if (is_data_parallel(claim.by)) plan.batch_axes.push_back(claim.axis);
  }
  if (problems.empty() && product != context.run().world_size)
    problems.add({}, concat("the plugins use ", product, " ranks, ", context.run().world_size,
                            " were started and none takes the rest. Start ", product,
                            ", or choose a data_parallel plugin"));
  return plan;
}

}  // namespace drivetrain
