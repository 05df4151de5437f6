#include "step/unit_runner.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>

#include <algorithm>

namespace drivetrain {

at::Tensor sum_of(const Tensors& summands) {
  const at::NoGradGuard no_grad;
  at::Tensor sum = summands.at(0);
  for (size_t i = 1; i < summands.size(); ++i) sum = at::add(sum, summands[i]);
  return sum;
}

UnitRunner::UnitRunner(UnitList& units, const Strategies& strategies, StepState& state, const Recompute* policy,
                       const Unit* always_kept, std::string model, std::string policy_id, SpanCheck* check)
    : units_(units),
      strategies_(strategies),
      state_(state),
      policy_(policy),
      always_kept_(always_kept),
      model_(std::move(model)),
      policy_id_(std::move(policy_id)),
      check_(check) {
  for (const UnitPtr& unit : units_.units) {
    trainable_.emplace_back();
    for (const ParamPtr& param : plugin_call({model_, "params", unit->name()}, [&] { return unit->params(); }))
      if (param->trainable) trainable_.back().push_back(param.get());
  }
}

template <class Call>
auto UnitRunner::checked(const Call& call) const {
  return check_ ? check_->watch(call) : call();
}

void UnitRunner::call_hooks(Nesting order, const char* name, Hook hook, const Visit& visit, const Unit& unit) const {
  each_strategy(strategies_, order, name, unit.name(), [&](Strategy& s) {
    const auto call = [&] { (s.*hook)(visit, state_); };
    check_ && !check_->is_owner(s) ? check_->watch(call) : call();
  });
}

bool UnitRunner::computed_again(const Unit& unit) const {
  if (!policy_ || state_.mode() != Mode::train || &unit == always_kept_) return false;
  return plugin_call({policy_id_, "keep", unit.name()}, [&] { return policy_->keep({unit.name(), ""}); }) != Keep::all;
}

void UnitRunner::hold(const Unit& unit, const Tensors& x, UnitFlight& flight) {
  plugin_call({policy_id_, "hold", unit.name()}, [&] {
    flight.held = policy_->hold(x);
    if (!flight.held) throw fail(ErrorCode::plugin, "returned nothing; wanted what gives the inputs back");
  });
  flight.inputs = x.size();
}

Tensors UnitRunner::restored(const Unit& unit, UnitFlight& flight) {
  return plugin_call({policy_id_, "restore", unit.name()}, [&] {
    Tensors x = std::exchange(flight.held, nullptr)->restore();
    if (x.size() != flight.inputs || !std::all_of(x.begin(), x.end(), [](const at::Tensor& t) { return t.defined(); }))
      throw fail(ErrorCode::plugin, "wanted the ", flight.inputs, " tensors that were held, found ", x.size(),
                 ", or some undefined");
    return x;
  });
}

// One tensor is held where two would be, and the unit's first norm, which adds them itself, finds the same sum. What
// is no block adds them anyway.
bool UnitRunner::sums_inputs(const Unit& unit, const Tensors& x) const {
  const int64_t index = state_.visit().unit;
  if (x.size() < 2 || index == 0 || state_.mode() != Mode::train) return false;
  return (computed_again(unit) || !unit.is_block()) && units_.units[index - 1]->returns_summands();
}

Tensors UnitRunner::compute(Unit& unit, Tensors x, UnitFlight& flight) {
  const bool again = computed_again(unit);
  flight.summed = sums_inputs(unit, x) ? x.size() : 0;
  if (flight.summed > 0) x = {sum_of(x)};
  if (again) hold(unit, x, flight);
  state_.count_terms(!again);
  return plugin_call({model_, "forward", unit.name()}, [&] {
    return checked([&] {
      if (!again) return unit.forward(x, state_, flight.saved);
      const at::AutoGradMode off(false);
      Saved nothing;
      return unit.forward(x, state_, nothing);
    });
  });
}

Tensors UnitRunner::forward(Tensors x, UnitFlight& flight) {
  const Visit visit = state_.visit();
  Unit& unit = *units_.units[visit.unit];
  call_hooks(Nesting::outermost_first, "before_forward", &Strategy::before_forward, visit, unit);
  if (check_) check_->opened(unit);
  Tensors y = compute(unit, std::move(x), flight);
  call_hooks(Nesting::innermost_first, "after_forward", &Strategy::after_forward, visit, unit);
  state_.next_visit();
  return y;
}

// The unit's gradients are complete unless those of weights are still to come; its values are read until then only.
template <class Work>
auto UnitRunner::in_backward_span(const char* name, const Work& work) {
  const Visit visit = state_.visit();
  Unit& unit = *units_.units[visit.unit];
  const auto hooks = [&](Nesting order, const char* name, Hook hook) { call_hooks(order, name, hook, visit, unit); };
  const bool reads_values = visit.part != Part::weight, completes_grads = visit.part != Part::input;
  if (reads_values) hooks(Nesting::outermost_first, "before_backward", &Strategy::before_backward);
  hooks(Nesting::outermost_first, "before_grads", &Strategy::before_grads);
  if (check_ && reads_values) check_->opened(unit);
  Tensors result = plugin_call({model_, name, unit.name()}, [&] {
    if (!check_) return work(unit);
    const std::vector<Param*> without = check_->without_gradient(trainable_[visit.unit]);
    Tensors made = check_->watch([&] { return work(unit); });
    if (completes_grads) check_->expect_gradients(without);
    return made;
  });
  if (completes_grads) {
    for (Param* param : trainable_[visit.unit])
      if (param->grad.defined()) param->complete_grad();
    hooks(Nesting::innermost_first, "after_backward", &Strategy::after_backward);
  }
  if (reads_values) hooks(Nesting::innermost_first, "values_done", &Strategy::values_done);
  state_.next_visit();
  return result;
}

Tensors UnitRunner::backward(const Tensors& dy, UnitFlight& flight) {
  const bool halved = state_.visit().part == Part::input;
  return in_backward_span("backward", [&](Unit& unit) {
    if (flight.held) {
      const at::AutoGradMode recording(true);
      state_.count_terms(true);
      unit.forward(restored(unit, flight), state_, flight.saved);
    }
    Tensors dx = unit.backward(dy, state_, flight.saved);
    if (flight.summed > 0) dx = Tensors(flight.summed, dx.at(0));
    if (!halved) flight = {};
    return dx;
  });
}

void UnitRunner::backward_weight(UnitFlight& flight) {
  in_backward_span("backward_weight", [&](Unit& unit) {
    unit.backward_weight(state_, flight.saved);
    flight = {};
    return Tensors();
  });
}

}  // namespace drivetrain
