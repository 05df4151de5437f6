#include "step/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <drivetrain/toolkit/seconds_since.h>

#include "data/cut_batch.h"

namespace drivetrain {
namespace {

// As many as CUDA graphs want: handles, workspaces and what plugins measure or cache are there.
constexpr int64_t kWarmUpSteps = 3;

constexpr const char* kEvalFigures = "eval/";  // "eval/SET/FIGURE"

// Those that are the same on all ranks.
Value shared_figures(const Value& data) {
  Value shared = Value::object();
  for (const char* name : {"step", "loss", "grad_norm", "lr", "tokens", "loss_scale", "skipped", "valid_loss"})
    if (const Value* figure = data.find(name)) shared.set(name, *figure);
  for (const Value::Member& figure : data.members())
    if (figure.key.starts_with(kEvalFigures) || figure.key.starts_with(kLossTermFigures))
      shared.set(figure.key, figure.value);
  return shared;
}

}  // namespace

Trainer::Trainer(const TrainerParts& parts, Publish publish, const std::atomic<int>& stop)
    : parts_(parts),
      publish_(std::move(publish)),
      stop_(stop),
      feed_plan_(parts.feed),
      batches_(parts.executor.device, parts.finish.runtime),
      evaluation_batches_(parts.executor.device, parts.finish.runtime),
      state_(parts.seed, &parts.executor.units, parts.executor.recompute, parts.activation_cuts,
             parts.executor.recompute_id),
      finish_(parts.finish),
      executor_(parts.executor, state_, finish_.seed_gradient()) {
  for (const NamedEvaluation& set : parts.evaluations) evaluators_.emplace_back(parts_.evaluator, set, state_);
  finish_.start();
  if (!parts.capture) return;
  if (finish_.scales_loss())
    throw fail(ErrorCode::plugin, parts.finish.precision_id,
               " has a loss scale and says that its steps may be recorded; a replay would repeat "
               "the scale of the recorded step. It must not call PlanContext::capturable");
  state_.refuse_random();
  // A pool of this run's own: one whose graphs are gone is not used again while anybody holds memory of it.
  const int64_t pool = parts.finish.runtime->new_graph_pool();
  for (auto* part : {&gradients_part_, &update_part_})
    part->emplace(*parts.finish.runtime, parts.executor.device, pool, kWarmUpSteps, parts.executor.flight);
}

Trainer::~Trainer() = default;

void Trainer::observe(PhaseClock* clock) {
  clock_ = clock;
  // What is recorded has no moments of its own: a mark within it would be part of the recording.
  executor_.observe(gradients_part_ ? nullptr : clock);
  finish_.observe(clock);
}

void Trainer::state(StateVisitor& visitor) { visitor.integer("next_step", feed_plan_.first_step); }

void Trainer::dataset_state(StateVisitor& visitor) {
  if (feed_)
    feed_->state(visitor);
  else
    plugin_call({parts_.feed.dataset, "state"}, [&] { parts_.dataset->state(visitor); });
}

// `first_step` is always the next one, so that `state` may come between any two.
int64_t Trainer::train() {
  int64_t step = parts_.feed.last_step;
  for (bool stop = false; !stop && feed_plan_.first_step <= feed_plan_.last_step;) {
    if (!feed_) feed_.emplace(parts_.dataset, feed_plan_);
    step = feed_plan_.first_step;
    const auto start = std::chrono::steady_clock::now();
    const StepResult result = train_step(step);
    ++feed_plan_.first_step;
    end_step(result, result.stop || step == feed_plan_.last_step, start);
    stop_signal_ = result.signal, stop = result.stop;
    if (!stop && step == parts_.feed.last_step) finish_.check_trained(result);
  }
  return step;
}

// Behind the last step all ranks come through all parts of it, whichever fails on one of them, so that what follows
// finds them together: step_end may be collective, so each strategy's is a part of its own.
void Trainer::end_step(const StepResult& result, bool last, std::chrono::steady_clock::time_point start) {
  const auto part = [&](const auto& run) {
    try {
      run();
    } catch (...) {
      if (!last) throw;
      if (!late_failure_) late_failure_ = std::current_exception();
    }
  };
  FlightRecord* const flight = parts_.executor.flight;
  const Strategies& strategies = parts_.executor.strategies;
  for (auto s = strategies.rbegin(); s != strategies.rend(); ++s)  // innermost first
    part([&] { plugin_call({s->id, "step_end"}, [&] { s->strategy->step_end(state_); }); });
  Value data = figures(result, seconds_since(start));
  try {
    if (flight) flight->aside(FlightDoing::evaluate);
    part([&] {
      if (parts_.feed.eval_due(result.step)) {
        const std::optional<double> loss = evaluate(result.step);
        data.set("valid_loss", loss ? Value(*loss) : Value());
      }
      evaluate_sets(result.step, data);
    });
  } catch (const Error&) {
    publish_(result.step, std::move(data));  // the step itself was done
    throw;
  }
  if (flight) flight->device_reached(), flight->aside_over();
  const Value shared = between_ ? shared_figures(data) : Value();
  part([&] { publish_(result.step, std::move(data)); });
  now_doing(FlightDoing::save);
  bool save = false;
  part([&] { save = save_is_due(result, shared, last); });
  part([&] {
    if (between_) between_->after_step(result, shared, save, last);
  });
  // What the device does behind the last step has ended, and told of it if it failed, before anything is given up.
  if (DeviceRuntime* const runtime = parts_.finish.runtime; last && runtime)
    part([&] { runtime->synchronize(parts_.executor.device); });
  now_doing(FlightDoing::outside);
}

// Behind the last step no exchange of another one tells who does not save, or has other rates.
bool Trainer::save_is_due(const StepResult& result, const Value& figures, bool last) {
  const bool now = last || (between_ && between_->waits_for_ranks());
  std::exception_ptr failure;
  try {
    if (between_)
      if (const uint64_t policies = between_->due(result, figures, last)) save_word_ = {result.step, policies};
  } catch (...) {
    if (!last) throw;
    failure = std::current_exception();  // the others wait in the exchange
  }
  if (now && parts_.executor.mesh.world_size() > 1) check_saves(finish_.agree_on_words(own_word()));
  if (failure) std::rethrow_exception(failure);
  return save_word_.step == result.step;
}

void Trainer::check_saves(const StepResult& result) const {
  for (size_t rank = 1; rank < result.saves.size(); ++rank) {
    const SaveWord &own = result.saves[0], &other = result.saves[rank];  // of rank 0, of this one
    if (own == other) continue;
    const bool by_other = other.step > own.step || (other.step == own.step && other.policies > own.policies);
    const uint64_t policies =
        own.step == other.step ? own.policies ^ other.policies : (by_other ? other : own).policies;
    throw fail(ErrorCode::plugin, "in ", between_->policies_text(policies), ", hook due: said on rank ",
               by_other ? rank : 0, " that a checkpoint is due after step ", std::max(own.step, other.step),
               ", and not on rank ", by_other ? 0 : rank,
               "\n   it must say the same on every rank: the others would wait for those that do not save");
  }
}

Batch Trainer::next_batch(DeviceBatches& places, int64_t micro) {
  Batch batch = places.put(micro, cut_batch(feed_->next(), parts_.batch_cuts));
  rows_.tokens += batch.valid_tokens;
  if (origin_without_labels_.empty()) origin_without_labels_ = feed_->origin_without_labels();
  const bool has_first_column = batch.positions.empty() || batch.positions.front().first == 0;
  if (has_first_column) rows_.documents += batch.documents, rows_.padding += batch.padding;
  return batch;
}

// Before recorded work: reading and copying are the host's, in every step.
void Trainer::take_all_batches() {
  taken_.clear();
  now_doing(FlightDoing::load);
  for (const Instr& instr : executor_.program(Pass::train))
    if (instr.op == Op::load) taken_[instr.micro] = next_batch(batches_, instr.micro);
  tell(clock_, Phase::load);
}

void Trainer::compute_gradients() {
  const auto load = [&](int64_t micro) { return gradients_part_ ? taken_.at(micro) : next_batch(batches_, micro); };
  const at::Tensor loss = executor_.run(load);
  now_doing(FlightDoing::reduce);
  finish_.sum_gradients(loss, state_);
  named_ = state_.loss_terms().sums();  // a replay writes the same tensors again
  named_.insert(state_.metrics().begin(), state_.metrics().end());
}

StepResult Trainer::train_step(int64_t step) {
  const ArenaStep places(arena_);
  if (FlightRecord* const flight = parts_.executor.flight) flight->at_step(step);
  tell(clock_, Phase::between);
  rows_ = {}, origin_without_labels_.clear();
  executor_.seed_with(finish_.seed_gradient());
  executor_.begin(Pass::train, step, Mode::train, gradients_part_ && gradients_part_->replays());
  if (gradients_part_) {
    take_all_batches();
    gradients_part_->run([&] { compute_gradients(); });
    tell(clock_, Phase::backward);  // all that a replay did
  } else {
    compute_gradients();
  }
  const StepResult result = agree(step);
  const bool skipped = result.skipped.value_or(false);
  now_doing(FlightDoing::save);
  if (between_) between_->before_update();
  now_doing(FlightDoing::update);
  if (update_part_ && !skipped)
    update_part_->run([&] { finish_.update(state_); });
  else if (!skipped)
    finish_.update(state_);
  finish_.updated();
  now_doing(FlightDoing::outside);
  return result;
}

// The host's wait for the device.
StepResult Trainer::agree(int64_t step) {
  FlightRecord* const flight = parts_.executor.flight;
  RankWord word = own_word();
  if (flight) word.work = flight->take_own_work();
  now_doing(FlightDoing::agree);
  StepResult result = finish_.agree(step, rows_, word, named_);
  if (flight) flight->device_reached();
  check_saves(result);
  if (parts_.on_work) parts_.on_work(result.work);
  if (result.tokens == 0) say_no_label("steps", concat("step ", step, ": the update is left out"));
  return result;
}

RankWord Trainer::own_word() const {
  return {stop_.load(), between_ ? between_->beside() : Beside::nothing, {}, save_word_};
}

void Trainer::now_doing(FlightDoing doing) {
  if (parts_.executor.flight) parts_.executor.flight->at(doing);
}

// Some lines of many: at the 1st, 2nd, 4th, 8th of a kind.
void Trainer::say_no_label(const std::string& kind, const std::string& what) {
  const int64_t count = ++without_labels_[kind];
  if (parts_.executor.mesh.rank() != 0 || (count & (count - 1)) != 0) return;
  const std::string from = origin_without_labels_.empty() ? "" : concat(" (", origin_without_labels_, ")");
  const std::string again = count == 1 ? "" : concat("; so it was in ", count, " ", kind);
  parts_.finish.log.warning(concat(what, ", because no label of its rows", from, " counts: every one is -100", again));
}

std::optional<double> Trainer::evaluate(int64_t step) {
  at::Tensor loss;
  rows_ = {}, origin_without_labels_.clear();
  for (int64_t i = 0; i < parts_.feed.eval_iters; ++i) {
    executor_.begin(Pass::forward_only, step, Mode::evaluate);
    const at::Tensor one = executor_.run([&](int64_t micro) { return next_batch(evaluation_batches_, micro); });
    loss = loss.defined() ? loss.add_(one) : one;
  }
  const StepResult result = finish_.agree_on_loss(loss, rows_);
  if (result.tokens == 0) {
    say_no_label("evaluations", concat("the evaluation after step ", step, " has no loss"));
    return std::nullopt;
  }
  if (!std::isfinite(result.loss))
    throw fail(ErrorCode::numeric, "the evaluation after step ", step, " gives loss ", result.loss,
               ". Try a lower learning rate, more warm-up or gradient_clipping");
  return result.loss;
}

void Trainer::evaluate_sets(int64_t step, Value& data) {
  for (Evaluator& evaluator : evaluators_) {
    if (!evaluator.set().due(step, parts_.feed.last_step)) continue;
    const Value figures = evaluator.run(step);
    if (figures.is_null()) {
      origin_without_labels_ = evaluator.set().id;
      say_no_label("evaluations of " + evaluator.set().name,
                   concat("the evaluation of ", evaluator.set().name, " after step ", step, " has no figures"));
      continue;
    }
    for (const Value::Member& figure : figures.members())
      data.set(concat(kEvalFigures, evaluator.set().name, "/", figure.key), figure.value);
  }
}

Value Trainer::figures(const StepResult& result, double step_s) const {
  // Throughput counts every slot of the batch, as InternEvo and Megatron-LM do; `tokens` counts the valid labels.
  const double slots = static_cast<double>(parts_.feed.train_batch_size * parts_.feed.seq_length);
  const double flops = slots * parts_.flops_per_token;
  const double ranks = static_cast<double>(parts_.executor.mesh.world_size());
  Value v = Value::object();
  v.set("step", result.step);
  v.set("loss", result.tokens > 0 ? Value(result.loss) : Value());
  v.set("grad_norm", result.tokens > 0 && std::isfinite(result.grad_norm) ? Value(result.grad_norm) : Value());
  v.set("lr", result.lr);
  v.set("tokens", result.tokens);
  if (parts_.feed.documents || result.documents > 0)  // also of one document per row, where the dataset counts them
    v.set("documents", result.documents), v.set("padding", result.padding);
  for (const auto& [name, mean] : result.loss_terms)
    v.set(kLossTermFigures + name, result.tokens > 0 ? Value(mean) : Value());
  if (result.loss_scale) v.set("loss_scale", *result.loss_scale);
  if (result.skipped) v.set("skipped", *result.skipped);
  v.set("step_s", step_s);
  v.set("tokens_per_s", slots / step_s);
  v.set("tgs", slots / step_s / ranks);
  v.set("tflops", flops / step_s / ranks / 1e12);
  v.set("flops_formula", parts_.flops_formula);
  v.set("peak_memory_bytes", static_cast<int64_t>(result.peak_memory_bytes));
  v.set("peak_reserved_bytes", static_cast<int64_t>(result.peak_reserved_bytes));
  if (!parts_.executor.device.is_cpu())
    v.set("host_peak_memory_bytes", static_cast<int64_t>(result.host_peak_memory_bytes));
  for (const auto& [name, mean] : result.means)
    if (!v.find(name)) v.set(name, mean);
  for (const auto& [name, own] : state_.metrics())
    if (!v.find(name)) v.set(name, own.sum.item<double>() / own.count);
  return v;
}

}  // namespace drivetrain
