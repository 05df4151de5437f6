#include "step/executor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

namespace drivetrain {

Executor::Executor(UnitList& units, const Strategies& strategies, StepState& state, const at::Device& device, double seed_gradient)
    : units_(units), strategies_(strategies), state_(state), device_(device), seed_gradient_(seed_gradient) {}

void Executor::begin(const Program& program, int64_t step, Mode mode, bool replayed) {
  const std::vector<ChunkUnits> chunks = {{0, static_cast<int64_t>(units_.units.size())}};
  state_.begin(step, mode, expand(program, chunks), replayed);
  if (mode == Mode::train)
    each_strategy(strategies_, Nesting::outermost_first, "step_begin", "", [&](Strategy& s) { s.step_begin(state_); });
}

at::Tensor Executor::run(const Program& program, const Load& load) {
  at::AutoGradMode recording(state_.mode() == Mode::train);
  losses_.clear();
  for (const Instr& instr : program) {
    switch (instr.op) {
      case Op::load:
        state_.set_batch(instr.micro, load(instr.micro));
        tell(clock_, Phase::load);
        break;
      case Op::forward:
        forward(instr.micro);
        tell(clock_, Phase::forward);
        break;
      case Op::backward:
        backward(instr.micro);
        tell(clock_, Phase::backward);
        break;
      case Op::flush_grads:
      case Op::update:
        return sum_of_losses();
      default:
        throw fail(ErrorCode::config, "the schedule uses instruction ", static_cast<int>(instr.op),
                   ", which is not in this version: a single stage knows load, forward, backward, flush_grads and update");
    }
  }
  return sum_of_losses();
}

// A loss is final after its backward: added once the program is through, in order of micro-batch.
at::Tensor Executor::sum_of_losses() {
  at::Tensor sum = at::zeros({}, at::TensorOptions(at::kDouble).device(device_));
  const at::NoGradGuard no_grad;
  for (const at::Tensor& loss : losses_) sum.add_(loss);
  losses_.clear();
  return sum;
}

void Executor::forward(int64_t micro) {
  std::vector<Saved>& saved = saved_[micro];
  saved.assign(units_.units.size(), {});
  const Batch& batch = state_.batch_of(micro);
  Tensors x = {batch.tokens_BS};
  for (Saved& s : saved) x = forward_unit(x, s);
  if (batch.labels_BS.defined()) {
    losses_.push_back(x.at(0));
  } else {
    logits_ = x.at(0);
  }
  if (state_.mode() == Mode::train) return;
  saved_.erase(micro);
  state_.drop_batch(micro);
}

void Executor::backward(int64_t micro) {
  auto saved = saved_.find(micro);
  if (saved == saved_.end()) throw fail(ErrorCode::internal, "the schedule runs micro-batch ", micro, " backward before forward");
  Tensors dy = {at::full({}, seed_gradient_, at::TensorOptions(at::kDouble).device(device_))};
  for (size_t u = units_.units.size(); u-- > 0;) dy = backward_unit(dy, saved->second[u]);
  saved_.erase(saved);
  state_.drop_batch(micro);
}

Tensors Executor::forward_unit(const Tensors& x, Saved& saved) {
  const Visit visit = state_.visit();
  Unit& unit = *units_.units[visit.unit];
  each_strategy(strategies_, Nesting::outermost_first, "before_forward", unit.name(),
                [&](Strategy& s) { s.before_forward(visit, state_); });
  Tensors y;
  try {
    y = unit.forward(x, state_, saved);
  } catch (const Error& e) {
    throw e.within("unit " + unit.name() + ", forward");
  }
  each_strategy(strategies_, Nesting::innermost_first, "after_forward", unit.name(),
                [&](Strategy& s) { s.after_forward(visit, state_); });
  state_.next_visit();
  return y;
}

Tensors Executor::backward_unit(const Tensors& dy, Saved& saved) {
  const Visit visit = state_.visit();
  Unit& unit = *units_.units[visit.unit];
  each_strategy(strategies_, Nesting::outermost_first, "before_backward", unit.name(),
                [&](Strategy& s) { s.before_backward(visit, state_); });
  Tensors dx;
  try {
    dx = unit.backward(dy, state_, saved);
  } catch (const Error& e) {
    throw e.within("unit " + unit.name() + ", backward");
  }
  saved = {};
  each_strategy(strategies_, Nesting::innermost_first, "after_backward", unit.name(),
                [&](Strategy& s) { s.after_backward(visit, state_); });
  state_.next_visit();
  return dx;
}

}  // namespace drivetrain
