// One visit of one unit, between the strategies' hooks: forward, backward, or the second half of a split backward.
// Units that the recompute policy does not keep run forward again in their backward's span. Main thread.
#pragma once

#include <memory>

#include <drivetrain/recompute.h>

#include "step/hooks.h"
#include "step/span_check.h"
#include "step/step_state.h"

namespace drivetrain {

// What one unit keeps of one micro-batch.
struct UnitFlight {
  Saved saved;
  std::unique_ptr<Held> held;  // its inputs, where it will be computed again
  size_t inputs = 0;           // how many those are
  size_t summed = 0;           // of so many tensors its input is the sum; 0: of none
};

// Of what a unit returned and the next one adds up (Unit::returns_summands); without autograd.
at::Tensor sum_of(const Tensors& summands);

class UnitRunner {
 public:
  // The visit is always `state`'s current one. `policy` may be null: everything is kept. `always_kept`: the chain's
  // last unit, or null. `model`, `policy_id`: their names. `check`: what looks at every call; null: nothing does.
  UnitRunner(UnitList& units, const Strategies& strategies, StepState& state, const Recompute* policy,
             const Unit* always_kept, std::string model, std::string policy_id, SpanCheck* check = nullptr);

  // Takes what the unit before returned.
  Tensors forward(Tensors x, UnitFlight& flight);
  // The whole, or the inputs' half, as the visit says.
  Tensors backward(const Tensors& dy, UnitFlight& flight);
  void backward_weight(UnitFlight& flight);

 private:
  bool computed_again(const Unit& unit) const;
  Tensors compute(Unit& unit, Tensors x, UnitFlight& flight);
  bool sums_inputs(const Unit& unit, const Tensors& x) const;
  void hold(const Unit& unit, const Tensors& x, UnitFlight& flight);
  Tensors restored(const Unit& unit, UnitFlight& flight);
  template <class Work>
  auto in_backward_span(const char* name, const Work& work);
  template <class Call>
  auto checked(const Call& call) const;
  using Hook = void (Strategy::*)(const Visit&, StepContext&);
  void call_hooks(Nesting order, const char* name, Hook hook, const Visit& visit, const Unit& unit) const;

  UnitList& units_;
  const Strategies& strategies_;
  StepState& state_;
  const Recompute* const policy_;
  const Unit* const always_kept_;
  const std::string model_, policy_id_;
  SpanCheck* const check_;
  std::vector<std::vector<Param*>> trainable_;  // of each unit; owned by it
};

}  // namespace drivetrain
