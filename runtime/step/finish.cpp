#include "step/finish.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "observe/memory.h"

namespace drivetrain {
namespace {

// Each rank's four numbers, gathered; summed in rank order, so every rank gets the same bits.
std::vector<double> gathered(Group& group, std::vector<double> mine) {
  const int64_t n = static_cast<int64_t>(mine.size());
  at::Tensor in = at::empty({n}, at::TensorOptions(at::kDouble)), out = at::empty({n * group.size()}, at::TensorOptions(at::kDouble));
  std::copy(mine.begin(), mine.end(), in.mutable_data_ptr<double>());
  group.all_gather(out, in)->wait();
  const double* data = out.const_data_ptr<double>();
  return {data, data + out.numel()};
}

// Source: the clipping rule of torch.nn.utils.clip_grad_norm_.
double clip_factor(double norm, double limit) {
  if (limit <= 0 || norm + 1e-6 <= limit) return 1;
  return limit / (norm + 1e-6);
}

}  // namespace

Finish::Finish(Composition& run)
    : run_(run),
      gradients_(run.gradient_group()),
      world_(run.mesh->world()),
      norm_(run.chunks, *run.mesh),
      seed_gradient_(1.0 / static_cast<double>(run.batch.train_batch_size * run.run.seq_length)) {}

StepResult Finish::agree(const LossSum& mine, bool stop) {
  StepResult result;
  double loss = 0, tokens = 0;
  const auto sums = gathered(*gradients_, {mine.loss, static_cast<double>(mine.tokens)});
  for (size_t i = 0; i < sums.size(); i += 2) loss += sums[i], tokens += sums[i + 1];
  const auto facts = gathered(*world_, {peak_memory_bytes(), stop ? 1.0 : 0.0});
  for (size_t i = 0; i < facts.size(); i += 2) {
    result.peak_memory_bytes = std::max(result.peak_memory_bytes, facts[i]);
    result.stop = result.stop || facts[i + 1] != 0;
  }
  result.tokens = static_cast<int64_t>(tokens);
  result.loss = tokens > 0 ? loss / tokens : 0;
  return result;
}

at::Tensor Finish::hyper(const StepResult& result, double& lr) const {
  Progress progress;
  progress.updates = result.step - 1;
  progress.samples = progress.updates * run_.batch.train_batch_size;
  progress.tokens = tokens_seen_;
  progress.train_steps = run_.settings.train_steps;
  const std::vector<Hyper> base = run_.optimizer->groups();
  at::Tensor table = at::empty({static_cast<int64_t>(base.size()), 3}, at::TensorOptions(at::kDouble));
  double* row = table.mutable_data_ptr<double>();
  for (size_t g = 0; g < base.size(); ++g, row += 3) {
    const Hyper h = run_.lr_schedule->at(progress, base[g]);
    row[0] = h.lr, row[1] = h.weight_decay, row[2] = h.momentum;
    if (g == 0) lr = h.lr;
  }
  return table;
}

void Finish::update(StepResult& result, StepContext& ctx) {
  each_strategy(run_.strategies, Nesting::innermost_first, "flush_grads", "", [&](Strategy& s) { s.flush_grads(ctx); });
  if (result.tokens == 0)
    throw fail(ErrorCode::io, "step ", result.step, " has no label that counts: every one is -100. Check the dataset");

  const double scale = 1.0 / (static_cast<double>(result.tokens) * seed_gradient_);
  result.grad_norm = std::sqrt(norm_.sum_of_squares(run_.chunks)) * scale;
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    const std::string name = norm_.first_not_finite(run_.chunks);
    throw fail(ErrorCode::numeric, "step ", result.step, ": loss is ", result.loss, ", gradient norm ", result.grad_norm,
               name.empty() ? "" : ", first in the gradient of " + name,
               ". The weights are those of step ", result.step - 1,
               ". Try a lower learning rate, more warm-up or gradient_clipping");
  }
  tell(clock_, Phase::finish);
  UpdateArgs args;
  args.hyper = hyper(result, result.lr);
  args.grad_scale = at::full({}, scale * clip_factor(result.grad_norm, run_.settings.gradient_clipping), at::kDouble);
  args.skip = at::zeros({}, at::TensorOptions(at::kBool));
  args.step = at::full({}, result.step - 1, at::kLong);
  for (Trainables& chunk : run_.chunks) {
    run_.optimizer->update(chunk, args);
    each_strategy(run_.strategies, Nesting::outermost_first, "after_update", "", [&](Strategy& s) { s.after_update(chunk, ctx); });
    for (const Trainable& t : chunk) ++t.param->version, t.param->grad_fresh = true;
  }
  tokens_seen_ += result.tokens;
  tell(clock_, Phase::update);
}

}  // namespace drivetrain
