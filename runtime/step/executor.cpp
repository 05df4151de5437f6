#include "step/executor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <drivetrain/toolkit/pipeline/program_check.h>

#include "plugin_calls/plugin_call.h"

namespace drivetrain {
namespace {

// Gradients as tensors of all outputs: a peer has no other way to learn that there is none.
Tensors all_defined(const Tensors& gradients, const Tensors& like, const at::Device& device) {
  Tensors all = gradients;
  for (size_t i = 0; i < all.size(); ++i)
    if (!all[i].defined()) all[i] = at::zeros(like[i].sizes(), like[i].options().device(device));
  return all;
}

FlightDoing doing_of(Op op) {
  switch (op) {
    case Op::load:
      return FlightDoing::load;
    case Op::recv_forward:
    case Op::recv_backward:
      return FlightDoing::receive;
    case Op::send_forward:
    case Op::send_backward:
      return FlightDoing::send;
    case Op::forward:
      return FlightDoing::forward;
    case Op::backward_weight:
      return FlightDoing::backward_weight;
    default:
      return FlightDoing::backward;
  }
}

}  // namespace

Executor::Executor(const ExecutorParts& parts, StepState& state, double seed_gradient)
    : parts_(parts),
      stage_(parts.mesh.index(Schedule::kAxis)),
      graph_(parts.schedule),
      state_(state),
      seed_gradient_(seed_gradient),
      check_(parts.check ? std::optional<SpanCheck>(std::in_place, parts.units, parts.storage_owner) : std::nullopt),
      runner_(parts.units, parts.strategies, state, parts.recompute, last_of_chain(), parts.model_id,
              parts.recompute_id, check_ ? &*check_ : nullptr) {
  programs_[0] = parts.schedule.program(stage_, parts.micro_batches, Pass::train);
  programs_[1] = parts.schedule.program(stage_, parts.micro_batches, Pass::forward_only);
  check_programs();
  if (parts.schedule.stages() > 1)
    links_.emplace(parts.mesh, parts.schedule, parts.micro_batches, parts.device, parts.purpose);
}

// Null if the chain's last unit is on another stage.
const Unit* Executor::last_of_chain() const {
  for (size_t chunk = 0; chunk < parts_.chunk_units.size(); ++chunk)
    if (is_last_piece(static_cast<int64_t>(chunk))) return parts_.units.units[parts_.chunk_units[chunk].last - 1].get();
  return nullptr;
}

// A schedule may be anybody's: what it forgets would show as a stage that waits for another one in vain.
void Executor::check_programs() const {
  for (const Pass pass : {Pass::train, Pass::forward_only}) {
    const ProgramCheck check = check_program(graph_, stage_, program(pass), parts_.micro_batches, pass,
                                             parts_.schedule.slots(stage_, parts_.micro_batches));
    if (check.problems.empty()) continue;
    std::string text;
    for (const std::string& problem : check.problems) text += "\n   " + problem;
    throw fail(ErrorCode::plugin, parts_.schedule_id, ": the schedule's program of stage ", stage_,
               " does not make sense:", text);
  }
}

void Executor::begin(Pass pass, int64_t step, Mode mode, bool replayed) {
  pass_ = pass, program_ = &program(pass);
  if (check_) check_->forget();
  state_.begin(step, mode, expand(*program_, parts_.chunk_units), replayed);
  if (pass == Pass::train) state_.begin_terms(seed_gradient_);
  if (mode == Mode::train)
    each_strategy(parts_.strategies, Nesting::outermost_first, "step_begin", "",
                  [&](Strategy& s) { s.step_begin(state_); });
  uses_.clear();
  for (const Instr& instr : *program_) uses_[instr.micro] += computes(instr.op);
}

void Executor::execute_all(const Load& load) {
  at::AutoGradMode recording(state_.mode() == Mode::train);
  losses_.clear();
  if (links_) links_->begin(pass_);
  for (const Instr& instr : *program_) execute(instr, load);
  if (links_) links_->wait_for_peers();
}

// A loss is final after its backward: added once the program is through, in order of micro-batch.
at::Tensor Executor::run(const Load& load) {
  execute_all(load);
  at::Tensor sum = at::zeros({}, at::TensorOptions(at::kDouble).device(parts_.device));
  const at::NoGradGuard no_grad;
  for (const auto& [micro, loss] : losses_) sum.add_(loss);
  losses_.clear();
  return sum;
}

Tensors Executor::run_each(const Load& load) {
  execute_all(load);
  if (losses_.empty()) return {};
  Tensors each(static_cast<size_t>(parts_.micro_batches));
  for (const auto& [micro, loss] : losses_) each.at(static_cast<size_t>(micro)) = loss;
  losses_.clear();
  return each;
}

void Executor::execute(const Instr& instr, const Load& load) {
  const auto told = [&](Phase phase) { tell(clock_, phase); };
  if (parts_.flight) parts_.flight->at(doing_of(instr.op), instr.micro);
  switch (instr.op) {
    case Op::load:
      state_.set_batch(instr.micro, load(instr.micro));
      return told(Phase::load);
    case Op::recv_forward:
      flight(instr).received = links_.value().receive(Direction::forward, instr.micro, instr.chunk);
      return told(Phase::wait);
    case Op::recv_backward:
      flight(instr).received_grad = links_.value().receive(Direction::backward, instr.micro, instr.chunk);
      return told(Phase::wait);
    case Op::send_forward:
      links_.value().send(Direction::forward, instr.micro, instr.chunk, flight(instr).made);
      flight(instr).made.clear();
      if (state_.mode() != Mode::train) flights_.erase({instr.micro, instr.chunk});
      return told(Phase::wait);
    case Op::send_backward:
      links_.value().send(Direction::backward, instr.micro, instr.chunk, std::exchange(flight(instr).made_grad, {}));
      if (flight(instr).units.empty()) flights_.erase({instr.micro, instr.chunk});
      return told(Phase::wait);
    case Op::forward:
      forward(instr);
      return told(Phase::forward);
    case Op::backward:
    case Op::backward_input:
      backward(instr);
      return told(Phase::backward);
    case Op::backward_weight:
      backward_weight(instr);
      return told(Phase::backward_weight);
    default:
      throw fail(ErrorCode::internal, "the schedule uses instruction ", static_cast<int>(instr.op),
                 ", which the runtime does not know");
  }
}

void Executor::forward(const Instr& instr) {
  Flight& f = flight(instr);
  const ChunkUnits& chunk = parts_.chunk_units.at(instr.chunk);
  const Batch& batch = state_.batch_of(instr.micro);
  f.units.clear();
  f.units.resize(chunk.last - chunk.first);
  Tensors x = is_first_piece(instr.chunk) ? Tensors{batch.tokens_BS} : std::exchange(f.received, {});
  if (x.empty())
    throw fail(ErrorCode::internal, "the schedule runs micro-batch ", instr.micro, " forward before it is received");
  if (!is_first_piece(instr.chunk))
    for (const at::Tensor& t : x) f.inputs.push_back(t.to(at::kMeta));
  for (UnitFlight& unit : f.units) x = runner_.forward(std::move(x), unit);
  if (!is_last_piece(instr.chunk)) {
    f.outputs = x.size();
    f.summed = x.size() > 1 && parts_.units.units[chunk.last - 1]->returns_summands();
    if (f.summed) x = {sum_of(x)};
    f.made = std::move(x);
  } else if (batch.labels_BS.defined()) {
    losses_.emplace_back(instr.micro, x.at(0));
  } else {
    logits_ = x.at(0);
  }
  if (state_.mode() != Mode::train) {
    const CurrentCall current({.id = parts_.model_id, .hook = "destructor of what it kept", .kind = ""});
    f.units.clear();
  }
  done_with(instr);
}

void Executor::backward(const Instr& instr) {
  Flight& f = flight(instr);
  const ChunkUnits& chunk = parts_.chunk_units.at(instr.chunk);
  if (f.units.empty())
    throw fail(ErrorCode::internal, "the schedule runs micro-batch ", instr.micro, " backward before forward");
  const bool last = is_last_piece(instr.chunk);
  Tensors dy = last ? Tensors{at::full({}, seed_gradient_, at::TensorOptions(at::kDouble).device(parts_.device))}
                    : std::exchange(f.received_grad, {});
  if (dy.empty())
    throw fail(ErrorCode::internal, "the schedule runs micro-batch ", instr.micro,
               " backward before its gradient is received");
  if (f.summed) dy = Tensors(f.outputs, dy[0]);
  for (int64_t u = chunk.last - chunk.first; u-- > 0;) dy = runner_.backward(dy, f.units[u]);
  if (!is_first_piece(instr.chunk)) f.made_grad = all_defined(dy, f.inputs, parts_.device);
  f.inputs.clear();
  if (instr.op == Op::backward) f.units.clear();
  if (f.units.empty() && f.made_grad.empty()) flights_.erase({instr.micro, instr.chunk});
  done_with(instr);
}

void Executor::backward_weight(const Instr& instr) {
  const auto found = flights_.find({instr.micro, instr.chunk});
  if (found == flights_.end() || found->second.units.empty())
    throw fail(ErrorCode::internal, "the schedule runs the weights' half of micro-batch ", instr.micro,
               " before the inputs'");
  std::vector<UnitFlight>& units = found->second.units;
  for (size_t u = units.size(); u-- > 0;) runner_.backward_weight(units[u]);
  units.clear();
  if (found->second.made_grad.empty()) flights_.erase(found);
  done_with(instr);
}

// A batch is read until its last computation on this stage.
void Executor::done_with(const Instr& instr) {
  if (--uses_.at(instr.micro) > 0) return;
  state_.drop_batch(instr.micro);
  if (state_.mode() != Mode::train && flight(instr).made.empty()) flights_.erase({instr.micro, instr.chunk});
}

}  // namespace drivetrain
