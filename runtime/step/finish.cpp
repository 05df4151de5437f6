#include "step/finish.h"

#include <algorithm>
#include <cmath>

#include "memory/cpu_allocator.h"
#include "observe/memory.h"

namespace drivetrain {
namespace {

// Source: the clipping rule of torch.nn.utils.clip_grad_norm_.
double clip_factor(double norm, double limit) {
  if (limit <= 0 || norm + 1e-6 <= limit) return 1;
  return limit / (norm + 1e-6);
}

HostFigures host_figures(const Composition& run, int64_t tokens, bool stop) {
  HostFigures mine;
  mine.tokens = tokens, mine.stop = stop;
  mine.memory = mine.host_memory = peak_memory_bytes();
  mine.reserved = static_cast<double>(cpu_memory().peak_reserved);
  if (DeviceRuntime* runtime = run.device_runtime()) {
    const DeviceMemory memory = runtime->memory(run.services->device);
    mine.memory = static_cast<double>(memory.peak_allocated), mine.reserved = static_cast<double>(memory.peak_reserved);
  }
  return mine;
}

// Near 1 / tokens, for the range of small types. Where those are computed in, a power of two: multiplying by it rounds nothing.
double seed_gradient_of(const Composition& run) {
  const double plain = 1.0 / static_cast<double>(run.batch.train_batch_size * run.run.seq_length);
  const at::ScalarType type = run.services->dtypes.param;
  return type == at::kFloat || type == at::kDouble ? plain : std::exp2(std::round(std::log2(plain)));
}

}  // namespace

Finish::Finish(Composition& run)
    : run_(run),
      figures_(run.mesh->world(), run.gradient_group(), run.services->device, run.device_runtime()),
      norm_(run.chunks, *run.mesh, run.services->device),
      scalars_(static_cast<int64_t>(run.optimizer->groups().size()), run.services->device, run.device_runtime()),
      seed_gradient_(seed_gradient_of(run)) {}

void Finish::settle(const at::Tensor& loss, StepContext& ctx) {
  each_strategy(run_.strategies, Nesting::innermost_first, "flush_grads", "", [&](Strategy& s) { s.flush_grads(ctx); });
  figures_.loss().copy_(loss);
  norm_.sum_of_squares(run_.chunks, figures_.squares());
}

StepResult Finish::exchange(int64_t tokens, bool stop) {
  const SharedFigures shared = figures_.exchange(host_figures(run_, tokens, stop));
  StepResult result;
  result.peak_memory_bytes = shared.memory;
  result.peak_reserved_bytes = shared.reserved, result.host_peak_memory_bytes = shared.host_memory;
  result.stop = shared.stop;
  result.tokens = static_cast<int64_t>(shared.tokens);
  result.loss = shared.tokens > 0 ? shared.loss / shared.tokens : 0;
  squares_ = shared.squares;
  return result;
}

StepResult Finish::agree_on_loss(const at::Tensor& loss, int64_t tokens) {
  figures_.loss().copy_(loss);
  return exchange(tokens, false);
}

StepResult Finish::agree(int64_t step, int64_t tokens, bool stop) {
  StepResult result = exchange(tokens, stop);
  result.step = step;
  if (result.tokens == 0)
    throw fail(ErrorCode::io, "step ", result.step, " has no label that counts: every one is -100. Check the dataset");
  const double scale = 1.0 / (static_cast<double>(result.tokens) * seed_gradient_);
  result.grad_norm = std::sqrt(squares_) * scale;
  refuse_not_finite(result);
  fill_hyper(result);
  scalars_.send(scale * clip_factor(result.grad_norm, run_.settings.gradient_clipping), result.step - 1);
  tell(clock_, Phase::finish);
  tokens_seen_ += result.tokens;
  return result;
}

void Finish::refuse_not_finite(const StepResult& result) const {
  if (std::isfinite(result.loss) && std::isfinite(result.grad_norm)) return;
  const std::string name = norm_.first_not_finite(run_.chunks);
  throw fail(ErrorCode::numeric, "step ", result.step, ": loss is ", result.loss, ", gradient norm ", result.grad_norm,
             name.empty() ? "" : ", first in the gradient of " + name,
             ". The weights are those of step ", result.step - 1,
             ". Try a lower learning rate, more warm-up or gradient_clipping");
}

void Finish::fill_hyper(StepResult& result) {
  Progress progress;
  progress.updates = result.step - 1;
  progress.samples = progress.updates * run_.batch.train_batch_size;
  progress.tokens = tokens_seen_;
  progress.train_steps = run_.settings.train_steps;
  const std::vector<Hyper> base = run_.optimizer->groups();
  double* row = scalars_.hyper();
  for (size_t g = 0; g < base.size(); ++g, row += 3) {
    const Hyper h = run_.lr_schedule->at(progress, base[g]);
    row[0] = h.lr, row[1] = h.weight_decay, row[2] = h.momentum;
    if (g == 0) result.lr = h.lr;
  }
}

void Finish::update(StepContext& ctx) {
  for (Trainables& chunk : run_.chunks) {
    run_.optimizer->update(chunk, scalars_.args());
    each_strategy(run_.strategies, Nesting::outermost_first, "after_update", "", [&](Strategy& s) { s.after_update(chunk, ctx); });
  }
}

void Finish::updated() {
  for (const Trainables& chunk : run_.chunks)
    for (const Trainable& t : chunk) ++t.param->version, t.param->grad_fresh = true;
  tell(clock_, Phase::update);
}

}  // namespace drivetrain
