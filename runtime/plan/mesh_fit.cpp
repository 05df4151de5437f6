#include "plan/mesh_fit.h"

#include <limits>

#include <drivetrain/toolkit/text.h>

namespace drivetrain {

int64_t times(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? std::numeric_limits<int64_t>::max() : result;
}

MeshFit::MeshFit(const std::vector<PlanRecord::Claim>& claims, int64_t world_size)
    : claims_(claims), world_(world_size) {
  for (const auto& claim : claims_) {
    if (claim.size == PlanContext::kRest)
      has_rest_ = true;
    else
      fixed_ = times(fixed_, claim.size);
  }
}

bool MeshFit::fits() const { return has_rest_ ? world_ % fixed_ == 0 : world_ == fixed_; }

int64_t MeshFit::rest() const { return world_ % fixed_ == 0 ? world_ / fixed_ : 1; }

Position MeshFit::place(const PlaceOf& place_of) const {
  Position place;
  int fixed = 0;
  for (const auto& claim : claims_)
    if (claim.size != PlanContext::kRest && ++fixed == 1) place = place_of(claim.by);
  return fixed == 1 ? place : Position{};
}

// The size this axis would need with all others as they are.
std::string MeshFit::sizes_for(const PlanRecord::Claim& claim) const {
  const int64_t others = fixed_ / claim.size;
  if (world_ % others != 0) return concat("no size fits beside the others' ", others);
  if (has_rest_)
    return concat(others == 1 ? "" : "with the others as they are ", "it could be ", divisors_text(world_ / others));
  return concat(others == 1 ? "" : "with the others as they are ", "it would have to be ", world_ / others);
}

std::string MeshFit::worlds() const {
  if (!has_rest_)
    return concat("start ", fixed_, fixed_ == 1 ? " rank" : " ranks",
                  ", or choose a data_parallel plugin, which takes the rest");
  const int64_t below = world_ / fixed_ * fixed_, above = below + fixed_;
  return concat("start a multiple of ", fixed_, " ranks (launch -n ", below > 0 ? concat(below, " or ") : "", above,
                ")");
}

std::string MeshFit::text(const PlaceOf& place_of) const {
  std::string product, lines;
  for (const auto& claim : claims_) {
    const Position where = place_of(claim.by);
    const std::string by = concat(claim.by, where.file.empty() ? "" : concat(", ", where.text()));
    if (claim.size == PlanContext::kRest) {
      lines += concat("\n   ", claim.axis, " takes the rest (", by, ")");
      continue;
    }
    product += concat(product.empty() ? "" : " x ", claim.axis, " ", claim.size);
    lines += concat("\n   ", claim.axis, " is ", claim.size, " (", by, "): ", sizes_for(claim));
  }
  if (product.find(" x ") != std::string::npos) product += concat(" = ", fixed_);
  const std::string ranks = concat(world_, world_ == 1 ? " rank" : " ranks");
  const std::string head = has_rest_ ? concat(product, " does not divide the world of ", ranks)
                           : product.empty()
                               ? concat("no plugin has a use for ", ranks)
                               : concat(product, " is not the world of ", ranks, ", and nobody takes the rest");
  return concat(head, lines, "\n   or ", worlds());
}

}  // namespace drivetrain
