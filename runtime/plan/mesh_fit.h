// Whether the sizes that plugins claim multiply to the number of ranks, and which sizes would. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "plan/mesh_plan.h"

namespace drivetrain {

// The largest number for a product that is larger.
int64_t times(int64_t a, int64_t b);

class MeshFit {
 public:
  // At most one claim takes the rest.
  MeshFit(const std::vector<PlanRecord::Claim>& claims, int64_t world_size);

  bool fits() const;
  bool has_rest() const { return has_rest_; }
  int64_t rest() const;                             // what the claim that takes the rest gets; 1 where nothing fits
  Position place(const PlaceOf& place_of) const;    // of the one axis that is to blame, nowhere if there are several
  std::string text(const PlaceOf& place_of) const;  // who claims what, which sizes would fit, how many ranks would

 private:
  std::string sizes_for(const PlanRecord::Claim& claim) const;
  std::string worlds() const;

  const std::vector<PlanRecord::Claim>& claims_;
  const int64_t world_;
  int64_t fixed_ = 1;  // product of the claims that have a size
  bool has_rest_ = false;
};

}  // namespace drivetrain
