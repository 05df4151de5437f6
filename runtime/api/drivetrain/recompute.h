// Which activations are kept for backward and which are computed again.
//
// Source: Chen et al. 2016, "Training deep nets with sublinear memory cost"; Korthikanti et al. 2022, section 5 (selective).
// Thread: main, and autograd's.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <drivetrain/step_context.h>
#include <drivetrain/strategy.h>

namespace drivetrain {

// A named span inside a unit ("attn.core", "mlp.act", "norm"), or the whole unit (empty name).
struct Region {
  std::string unit;
  std::string_view name;
};

class DRIVETRAIN_API Recompute : public Strategy {
 public:
  static constexpr const char* kKind = "recompute";
  ~Recompute() override;
  // What is kept of `region` between its forward and its backward. The same answer in both.
  virtual Keep keep(const Region& region) const = 0;
};

}  // namespace drivetrain
