#include "step/unit_runner.h"

#include <ATen/core/grad_mode.h>

namespace drivetrain {

bool UnitRunner::computed_again(const Unit& unit) const {
  return policy_ && state_.mode() == Mode::train && &unit != always_kept_ && policy_->keep({unit.name(), ""}) != Keep::all;
}

Tensors UnitRunner::compute(Unit& unit, const Tensors& x, UnitFlight& flight) {
  if (!computed_again(unit)) return unit.forward(x, state_, flight.saved);
  flight.held = policy_->hold(x);
  const at::AutoGradMode off(false);
  Saved nothing;
  return unit.forward(x, state_, nothing);
}

Tensors UnitRunner::forward(const Tensors& x, UnitFlight& flight) {
  const Visit visit = state_.visit();
  Unit& unit = *units_.units[visit.unit];
  each_strategy(strategies_, Nesting::outermost_first, "before_forward", unit.name(),
                [&](Strategy& s) { s.before_forward(visit, state_); });
  Tensors y;
  try {
    y = compute(unit, x, flight);
  } catch (const Error& e) {
    throw e.within("unit " + unit.name() + ", forward");
  }
  each_strategy(strategies_, Nesting::innermost_first, "after_forward", unit.name(),
                [&](Strategy& s) { s.after_forward(visit, state_); });
  state_.next_visit();
  return y;
}

template <class Work>
auto UnitRunner::in_backward_span(const Work& work) {
  const Visit visit = state_.visit();
  Unit& unit = *units_.units[visit.unit];
  each_strategy(strategies_, Nesting::outermost_first, "before_backward", unit.name(),
                [&](Strategy& s) { s.before_backward(visit, state_); });
  Tensors result;
  try {
    result = work(unit);
  } catch (const Error& e) {
    throw e.within("unit " + unit.name() + ", backward");
  }
  each_strategy(strategies_, Nesting::innermost_first, "after_backward", unit.name(),
                [&](Strategy& s) { s.after_backward(visit, state_); });
  state_.next_visit();
  return result;
}

Tensors UnitRunner::backward(const Tensors& dy, UnitFlight& flight) {
  const bool halved = state_.visit().part == Part::input;
  return in_backward_span([&](Unit& unit) {
    if (flight.held) {
      const at::AutoGradMode recording(true);
      unit.forward(std::exchange(flight.held, nullptr)->restore(), state_, flight.saved);
    }
    const Tensors dx = unit.backward(dy, state_, flight.saved);
    if (!halved) flight = {};
    return dx;
  });
}

void UnitRunner::backward_weight(UnitFlight& flight) {
  in_backward_span([&](Unit& unit) {
    unit.backward_weight(state_, flight.saved);
    flight = {};
    return Tensors();
  });
}

}  // namespace drivetrain
