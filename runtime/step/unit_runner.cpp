#include "step/unit_runner.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace drivetrain {

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

Tensors UnitRunner::compute(Unit& unit, const Tensors& x, UnitFlight& flight) {
  const bool again = computed_again(unit);
  if (again) hold(unit, x, flight);
  return plugin_call({model_, "forward", unit.name()}, [&] {
    if (!again) return unit.forward(x, state_, flight.saved);
    const at::AutoGradMode off(false);
    Saved nothing;
    return unit.forward(x, state_, nothing);
  });
}

Tensors UnitRunner::forward(const Tensors& x, UnitFlight& flight) {
  const Visit visit = state_.visit();
  Unit& unit = *units_.units[visit.unit];
  each_strategy(strategies_, Nesting::outermost_first, "before_forward", unit.name(),
                [&](Strategy& s) { s.before_forward(visit, state_); });
  Tensors y = compute(unit, x, flight);
  each_strategy(strategies_, Nesting::innermost_first, "after_forward", unit.name(),
                [&](Strategy& s) { s.after_forward(visit, state_); });
  state_.next_visit();
  return y;
}

template <class Work>
auto UnitRunner::in_backward_span(const char* name, const Work& work) {
  const Visit visit = state_.visit();
  Unit& unit = *units_.units[visit.unit];
  each_strategy(strategies_, Nesting::outermost_first, "before_backward", unit.name(),
                [&](Strategy& s) { s.before_backward(visit, state_); });
  Tensors result = plugin_call({model_, name, unit.name()}, [&] { return work(unit); });
  each_strategy(strategies_, Nesting::innermost_first, "after_backward", unit.name(),
                [&](Strategy& s) { s.after_backward(visit, state_); });
  state_.next_visit();
  return result;
}

Tensors UnitRunner::backward(const Tensors& dy, UnitFlight& flight) {
  const bool halved = state_.visit().part == Part::input;
  return in_backward_span("backward", [&](Unit& unit) {
    if (flight.held) {
      const at::AutoGradMode recording(true);
      unit.forward(restored(unit, flight), state_, flight.saved);
    }
    const Tensors dx = unit.backward(dy, state_, flight.saved);
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
