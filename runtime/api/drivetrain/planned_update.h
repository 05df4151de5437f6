// What an update does beside reading and writing values, gradients and the optimizer's state. Thread: main.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/planned_memory.h>

DRIVETRAIN_CONTRACT(planned_update)

namespace drivetrain {

class PlanContext;

// Of one step on the rank that has most: `count` products [rows, in] x [in, out] of operands of a type, and what passes
// over memory read and write.
struct UpdateWork {
  struct Product {
    std::string dtype;
    double rows = 0, out = 0, in = 0, count = 0;
  };
  std::vector<Product> products;
  double passed_bytes = 0;
};

// Of a stage's rank: the trained elements that it updates, and whether these are in its host's memory.
struct PlannedUpdate {
  const PlannedStage& stage;
  double elements = 0;
  bool on_host = false;
};

// Plugins that do more derive from this, too: optimizers (Muon), strategies (averages). Traffic and memory are declared
// to `ctx`; an optimizer's buffers are those that live during the update alone.
class DRIVETRAIN_API UpdatePlan {
 public:
  virtual ~UpdatePlan() = default;
  virtual UpdateWork plan_update(PlanContext& ctx, const PlannedUpdate& update) const = 0;
};

}  // namespace drivetrain
