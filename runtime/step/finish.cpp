#include "step/finish.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <drivetrain/schedule.h>
#include <drivetrain/toolkit/dtype_name.h>

#include "base/digest.h"
#include "memory/cpu_allocator.h"
#include "observe/memory.h"
#include "step/figure_names.h"
#include "step/named_state.h"

namespace drivetrain {
namespace {

// Source: the clipping rule of torch.nn.utils.clip_grad_norm_.
double clip_factor(double norm, double limit) {
  if (limit <= 0 || norm + 1e-6 <= limit) return 1;
  return limit / (norm + 1e-6);
}

RankFigures host_figures(const FinishParts& parts, const RowCounts& rows, const RankWord& word) {
  RankFigures mine;
  mine.tokens = static_cast<double>(rows.tokens), mine.documents = static_cast<double>(rows.documents);
  mine.padding = static_cast<double>(rows.padding), mine.beside = static_cast<double>(word.beside);
  mine.signal = word.signal, mine.work = word.work;
  mine.memory = mine.host_memory = peak_memory_bytes();
  mine.reserved = static_cast<double>(cpu_memory().peak_reserved);
  if (DeviceRuntime* runtime = parts.runtime) {
    const DeviceMemory memory = runtime->memory(parts.device);
    mine.memory = static_cast<double>(memory.peak_allocated), mine.reserved = static_cast<double>(memory.peak_reserved);
  }
  return mine;
}

// Where no loss scale comes to its minimum first: that many lost steps in a row are no accident any more.
constexpr int64_t kMostSkippedInARow = 100;

bool is_wide(at::ScalarType type) { return type == at::kFloat || type == at::kDouble; }

// Near 1 / tokens, for the range of small types. Where those are computed in, a power of two: multiplying by it rounds
// nothing. Under a loss scale the tokens are one rank's, so that its gradients have the size that a scale which is
// right for DeepSpeed expects; that divides by the number of ranks where it sums over them, agree() does with all else.
double plain_seed_of(const FinishParts& parts, bool scaled) {
  const double ranks = scaled ? static_cast<double>(parts.batch_ranks) : 1;
  const double plain = ranks / static_cast<double>(parts.train_batch_size * parts.seq_length);
  return is_wide(parts.param_dtype) ? plain : std::exp2(std::round(std::log2(plain)));
}

// As units see the number: in their own type, so that what divides the gradients is what multiplied them.
double as_seen(double seed, at::ScalarType type) {
  const auto narrow = static_cast<float>(seed);
  const double seen = type == at::kHalf       ? static_cast<double>(static_cast<float>(c10::Half(narrow)))
                      : type == at::kBFloat16 ? static_cast<double>(static_cast<float>(c10::BFloat16(narrow)))
                                              : seed;
  return std::isfinite(seen) ? seen : seed;  // too large a one is an overflow like others
}

// 1048576 rather than 1.04858e+06.
std::string scale_text(double scale) {
  const bool whole = scale < 1e15 && scale == std::floor(scale);
  return whole ? concat(static_cast<int64_t>(scale)) : concat(scale);
}

std::optional<LossScaler> scaler_of(const FinishParts& parts) {
  if (!parts.precision) return std::nullopt;
  const PluginCall call{parts.precision_id, "loss_scaling"};
  const auto rules = plugin_call(call, [&] { return parts.precision->loss_scaling(); });
  return rules ? std::optional<LossScaler>(*rules) : std::nullopt;
}

bool skips_not_finite(const FinishParts& parts) {
  if (!parts.precision) return false;
  return plugin_call({parts.precision_id, "skips_not_finite"}, [&] { return parts.precision->skips_not_finite(); });
}

Figures::Sharers sharers_of(const FinishParts& parts) {
  std::vector<std::string> axes = parts.gradient_axes;
  Figures::Sharers sharers;
  sharers.tokens = parts.mesh.ranks(axes);
  axes.push_back(Schedule::kAxis);
  sharers.losses = parts.mesh.ranks(axes);
  return sharers;
}

// Groups of the stages that hold a parameter together, by its name. All ranks make them in the same order.
std::map<std::string, GroupPtr> tied_groups(const FinishParts& parts) {
  std::map<std::string, GroupPtr> groups;
  const int64_t stage = parts.mesh.index(Schedule::kAxis);
  for (const auto& [name, stages] : parts.tied_stages)
    if (std::find(stages.begin(), stages.end(), stage) != stages.end())
      groups[name] = parts.mesh.subgroup(Schedule::kAxis, stages, "tied " + name);
  return groups;
}

// The first of the stages that hold a parameter counts it in the norm.
std::set<std::string> counted_elsewhere(const FinishParts& parts) {
  std::set<std::string> names;
  for (const auto& [name, stages] : parts.tied_stages)
    if (stages.front() != parts.mesh.index(Schedule::kAxis)) names.insert(name);
  return names;
}

// A rate below zero would climb.
Hyper sound(const Hyper& h) {
  if (std::isfinite(h.lr) && h.lr >= 0 && std::isfinite(h.weight_decay) && std::isfinite(h.momentum)) return h;
  throw fail(ErrorCode::plugin, "returned lr ", h.lr, ", weight_decay ", h.weight_decay, ", momentum ", h.momentum,
             "; wanted finite numbers, and a rate of 0 or more");
}

constexpr const char* kCalmer = "Try a lower learning rate, more warm-up or gradient_clipping";

}  // namespace

Finish::Finish(const FinishParts& parts)
    : parts_(parts),
      optimizer_(parts.optimizer_id, parts.optimizer, parts.param_groups),
      figures_(parts.mesh.world(), sharers_of(parts), parts.device, parts.runtime),
      named_sums_(parts.mesh.world(), parts.device),
      sums_(parts.chunks, parts.mesh, tied_groups(parts)),
      norm_(parts.chunks, parts.model_params, parts.mesh, parts.device, counted_elsewhere(parts)),
      scalars_(optimizer_.rows(), parts.device, parts.runtime),
      scaler_(scaler_of(parts)),
      plain_seed_(plain_seed_of(parts, scaler_.has_value())),
      may_skip_(scaler_ || skips_not_finite(parts)) {}

double Finish::seed_gradient() const {
  if (!scaler_) return plain_seed_;
  const at::ScalarType type = parts_.param_dtype;
  const double seed = as_seen(plain_seed_ * scaler_->scale(), type);
  if (seed != 0) return seed;
  throw fail(ErrorCode::config, "loss_scale ", scale_text(scaler_->scale()), " is too small for ",
             parts_.train_batch_size / parts_.batch_ranks * parts_.seq_length,
             " tokens per step on each rank: the backward pass would begin with ", plain_seed_ * scaler_->scale(),
             ", which ", dtype_name(type), " rounds to 0, and so would be all gradients. Use ",
             scaler_->dynamic() ? "a larger initial_scale_power and min_loss_scale"
                                : "a larger loss_scale, or 0: it then follows the gradients");
}

void Finish::sum_gradients(const at::Tensor& loss, StepContext& ctx) {
  each_strategy(parts_.strategies, Nesting::innermost_first, "flush_grads", "",
                [&](Strategy& s) { s.flush_grads(ctx); });
  sums_.run();
  figures_.loss().copy_(loss);
  norm_.sum_of_squares(parts_.chunks, figures_.squares());
}

StepResult Finish::exchange(const RowCounts& rows, const RankWord& word, const NamedSums& named) {
  RankFigures mine = host_figures(parts_, rows, word);
  mine.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  // Its errors say whose they are.
  const PluginCall call{.id = parts_.communicator_id, .hook = "all_gather", .kind = "", .keeps_errors = true};
  mine.named = static_cast<double>(named.size()), mine.names = SumsOverRanks::digest(named);
  mine.lr = lr_, mine.hyper = hyper_;
  mine.save_after = static_cast<double>(word.save.step), mine.save_policies = static_cast<double>(word.save.policies);
  SharedFigures shared = plugin_call(call, [&] { return figures_.exchange(mine); });
  check_rates(shared.ranks);
  StepResult result;
  result.peak_memory_bytes = shared.memory;
  result.peak_reserved_bytes = shared.reserved, result.host_peak_memory_bytes = shared.host_memory;
  result.stop = shared.signal != 0, result.signal = shared.signal;
  result.beside = shared.beside, result.seconds = shared.seconds;
  result.tokens = shared.rows.tokens, result.documents = shared.rows.documents, result.padding = shared.rows.padding;
  result.loss = result.tokens > 0 ? shared.loss / static_cast<double>(result.tokens) : 0;
  if (shared.named > 0) plugin_call(call, [&] { share_named(named, shared, result); });
  for (const RankFigures& rank : shared.ranks) {
    result.work.push_back(rank.work);
    result.saves.push_back({static_cast<int64_t>(rank.save_after), static_cast<uint64_t>(rank.save_policies)});
  }
  squares_ = shared.squares;
  return result;
}

void Finish::share_named(const NamedSums& mine, const SharedFigures& shared, StepResult& result) {
  const auto tokens = static_cast<double>(result.tokens * figures_.copies());
  std::vector<double> digests;
  for (const RankFigures& rank : shared.ranks) digests.push_back(rank.names);
  for (const auto& [name, all] : named_sums_.add(mine, shared.named, digests))
    if (name.starts_with(kLossTermFigures))
      result.loss_terms[name.substr(std::strlen(kLossTermFigures))] = tokens > 0 ? all.sum / tokens : 0;
    else
      result.means[name] = all.sum / all.count;
}

// A rank with rates of its own has trained other weights than its peers, which hold copies of them.
void Finish::check_rates(const std::vector<RankFigures>& ranks) const {
  const RankFigures& first = ranks[0];
  for (size_t rank = 1; rank < ranks.size(); ++rank)
    if (const RankFigures& other = ranks[rank]; other.hyper != first.hyper)
      throw fail(ErrorCode::plugin, "in ", parts_.lr_schedule_id, ", hook at: rank ", rank, " was given lr ", other.lr,
                 " for the last update, and rank 0 lr ", first.lr,
                 other.lr == first.lr ? ", with another weight decay, momentum or group" : "",
                 "\n   it must return the same on every rank, or copies of a weight become different");
}

StepResult Finish::agree_on_loss(const at::Tensor& loss, const RowCounts& rows) {
  figures_.loss().copy_(loss);
  return exchange(rows, {});
}

StepResult Finish::agree(int64_t step, const RowCounts& rows, const RankWord& word, const NamedSums& named) {
  StepResult result = exchange(rows, word, named);
  result.step = step;
  if (result.tokens == 0) {
    pass_over(result);
    return result;
  }
  const double scale = 1.0 / (static_cast<double>(result.tokens) * seed_gradient());
  result.grad_norm = std::sqrt(squares_) * scale;
  const bool skip = skips(result);
  if (may_skip_) result.skipped = skip;
  if (scaler_) result.loss_scale = scaler_->scale();
  fill_hyper(result);
  scalars_.send(skip ? 0 : scale * clip_factor(result.grad_norm, parts_.gradient_clipping), updates_, skip);
  adapt_scale(result);
  tell(clock_, Phase::finish);
  if (skip) return result;
  ++updates_;
  tokens_seen_ += result.tokens;
  return result;
}

// Without a label there is neither a loss nor a gradient: an update would only let momentum and weight decay act, on
// the word of no data. All ranks have the same number of tokens, so they come to the same answer.
void Finish::pass_over(StepResult& result) {
  result.skipped = true;
  if (scaler_) result.loss_scale = scaler_->scale();
  fill_hyper(result);
  scalars_.send(0, updates_, true);
  tell(clock_, Phase::finish);
}

// All ranks have the same figures, so they come to the same answer. A forward pass that is not finite is nobody's
// overflow: whatever the scale, it would be the same again.
bool Finish::skips(const StepResult& result) {
  const double norm = result.grad_norm;
  const auto term_is_finite = [](const auto& term) { return std::isfinite(term.second); };
  if (!std::isfinite(result.loss) || !std::all_of(result.loss_terms.begin(), result.loss_terms.end(), term_is_finite))
    throw not_finite(
        result, "",
        scaler_ ? concat(". The loss does not depend on the loss scale. ", kCalmer) : concat(". ", kCalmer));
  if (std::isfinite(norm)) {
    skipped_in_a_row_ = 0;
    return false;
  }
  if (!may_skip_) throw not_finite(result, "", concat(". ", kCalmer));
  if (scaler_ && scaler_->exhausted())
    throw not_finite(result, concat(" at loss scale ", scale_text(scaler_->scale()), ", which is its minimum"),
                     concat(". ", kCalmer, ", or bfloat16, whose range needs no loss scale"));
  if (++skipped_in_a_row_ < kMostSkippedInARow || (scaler_ && scaler_->dynamic())) return true;
  throw not_finite(result,
                   concat(", as in the ", skipped_in_a_row_ - 1, " steps before it, whose updates were left out"),
                   concat(". ", kCalmer, scaler_ ? ", a smaller loss_scale, or 0: it then follows the gradients" : ""));
}

void Finish::check_trained(const StepResult& last) const {
  if (updates_ > 0) return;
  if (skipped_in_a_row_ == 0)
    throw fail(ErrorCode::io, "no step of this run had a label that counts: every one is -100. No update was made and ",
               "the model is untrained. Check the dataset");
  throw not_finite(last, ", as in every step of this run: no update was made and the model is untrained",
                   concat(". ", kCalmer,
                          scaler_ ? scaler_->dynamic() ? ", more steps, or a smaller initial_scale_power"
                                                       : ", a smaller loss_scale, or 0: it then follows the gradients"
                                  : ""));
}

Error Finish::not_finite(const StepResult& result, const std::string& what, const std::string& advice) const {
  const std::string name = norm_.first_not_finite();
  std::string terms;
  for (const auto& [term, value] : result.loss_terms)
    if (!std::isfinite(value)) terms += concat(", ", kLossTermFigures, term, " ", value);
  return fail(ErrorCode::numeric, "step ", result.step, ": loss is ", result.loss, terms, ", gradient norm ",
              result.grad_norm, what, name.empty() ? "" : ", first in the gradient of " + name,
              ". The weights are those of step ", result.step - 1, advice);
}

// The scale follows; whoever reads the console learns of an update that is left out.
void Finish::adapt_scale(const StepResult& result) {
  const bool skip = result.skipped.value_or(false);
  if (scaler_) scaler_->update(skip);
  if (!skip || parts_.mesh.rank() != 0) return;
  const std::string name = norm_.first_not_finite();
  const std::string text = concat("step ", result.step, ": gradients are not finite",
                                  name.empty() ? "" : ", first that of " + name, "; the update is left out");
  if (!scaler_) return parts_.log.warning(text);
  const double before = *result.loss_scale, after = scaler_->scale();
  parts_.log.info(
      concat(text, ", loss scale ", scale_text(before), after == before ? " stays" : " falls to " + scale_text(after)));
}

void Finish::fill_hyper(StepResult& result) {
  Progress progress;
  progress.updates = updates_;
  progress.samples = progress.updates * parts_.train_batch_size;
  progress.tokens = tokens_seen_;
  progress.train_steps = parts_.train_steps;
  const std::vector<Hyper> base = optimizer_.groups();
  std::vector<Hyper> now;
  for (const Hyper& group : base)
    now.push_back(
        plugin_call({parts_.lr_schedule_id, "at"}, [&] { return sound(parts_.lr_schedule.at(progress, group)); }));
  const std::vector<Hyper> rows = parts_.param_groups.hypers(base, now);
  double* row = scalars_.hyper();
  for (const Hyper& h : rows) row[0] = h.lr, row[1] = h.weight_decay, row[2] = h.momentum, row += 3;
  result.lr = now.front().lr;
  lr_ = result.lr, hyper_ = as_number(digest_of(scalars_.hyper(), 3 * rows.size() * sizeof(double)));
}

// A chunk's values are on one device, which is the host where they were left there.
const UpdateArgs& Finish::scalars_for(const Trainables& chunk) const {
  return chunk.empty() ? scalars_.args() : scalars_.args(chunk.front().value.device());
}

void Finish::update(StepContext& ctx) {
  for (Trainables& chunk : parts_.chunks) {
    optimizer_.update(chunk, scalars_for(chunk));
    each_strategy(parts_.strategies, Nesting::outermost_first, "after_update", "",
                  [&](Strategy& s) { s.after_update(chunk, ctx); });
  }
  optimizer_.updated();
}

void Finish::updated() {
  for (const Trainables& chunk : parts_.chunks)
    for (const Trainable& t : chunk) t.param->restart_grad();
  tell(clock_, Phase::update);
}

void Finish::state(StateVisitor& visitor) {
  visitor.integer("updates", updates_);
  visitor.integer("tokens_seen", tokens_seen_);
  visitor.integer("skipped_in_a_row", skipped_in_a_row_);
  NamedState scaler(visitor, "loss_scaler");
  if (scaler_) scaler_->state(scaler);
}

}  // namespace drivetrain
