// The runtime's StepContext: one per rank, told before every call which visit it is about.
#pragma once

#include <ATen/ops/cat.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/recompute.h>
#include <drivetrain/step_context.h>
#include <drivetrain/strategy.h>
#include <drivetrain/unit.h>

#include "data/sequence_cuts.h"
#include "plugin_calls/plugin_call.h"
#include "step/figure_names.h"
#include "step/loss_terms.h"

namespace drivetrain {

class StepState final : public StepContext {
 public:
  // `recompute` may be null: everything is kept. `units` are those that visits count. `activation_cuts`: of the batch's
  // positions. `policy_id`: the name of `recompute`.
  explicit StepState(uint64_t seed, const UnitList* units = nullptr, const Recompute* recompute = nullptr,
                     std::vector<Builder::SequenceCut> activation_cuts = {}, std::string policy_id = Recompute::kKind)
      : seed_(seed),
        units_(units),
        recompute_(recompute),
        activation_cuts_(std::move(activation_cuts)),
        policy_id_(std::move(policy_id)) {}

  int64_t step() const override { return step_; }
  Mode mode() const override { return mode_; }
  const Batch& batch() const override { return batches_.at(visit().micro); }
  const Visit& visit() const override { return visits_.at(at_); }
  std::span<const Visit> ahead() const override {
    return std::span(visits_).subspan(std::min(at_ + 1, visits_.size()));
  }
  RandomKey random(std::string_view site) const override {
    if (!random_ && mode_ == Mode::train)
      throw fail(ErrorCode::internal, "random numbers for ", site,
                 " in a step that is recorded: a replay would repeat them. "
                 "Set \"capture\" to false");
    const bool whole = batch().positions.empty() && activation_cuts_.empty();
    return {seed_, static_cast<uint64_t>(step_), hash_name(site), batch().first_sample,
            whole ? std::vector<RowRange>() : activation_positions()};
  }
  std::vector<RowRange> activation_positions() const override {
    return apply_cuts(activation_cuts_, positions(), batch().cu_seqlens);
  }
  Keep keep(std::string_view region) const override {
    if (!recompute_ || !units_) return Keep::all;
    const std::string& unit = units_->units.at(visit().unit)->name();
    return plugin_call({policy_id_, "keep", unit}, [&] { return recompute_->keep({unit, region}); });
  }
  at::Tensor add_loss(const std::string& name, const at::Tensor& value, double weight) override {
    if (mode_ != Mode::train) return {};
    const at::Tensor& labels = batch().labels_BS;
    if (activation_cuts_.empty()) return terms_.add(name, value, weight, visit().micro, labels, 1, counts_terms_);
    Tensors columns;  // that activations have on this rank
    for (const RowRange& range : columns_of(activation_positions(), positions()))
      columns.push_back(labels.narrow(1, range.first, range.count));
    const at::Tensor own = columns.size() == 1 ? columns[0] : at::cat(columns, 1);
    return terms_.add(name, value, weight, visit().micro, own, labels.size(1) / own.size(1), counts_terms_);
  }
  // Figures are those of training steps.
  void metric(const std::string& name, const at::Tensor& scalar) override {
    if (name.empty() || name.size() > kLongestFigure || is_own_figure(name))
      throw fail(ErrorCode::plugin, "metric(\"", name, "\"): ",
                 is_own_figure(name) ? "the runtime has a figure of this name"
                                     : concat("a figure needs a name of 1 to ", kLongestFigure, " characters"),
                 "; give it one of its own, such as \"", is_own_figure(name) ? "my_" + name : "mine", "\"");
    if (!scalar.defined() || scalar.numel() != 1)
      throw fail(ErrorCode::plugin, "metric(\"", name, "\"): wanted one element, found ",
                 scalar.defined() ? concat("a tensor of shape ", scalar.sizes()) : "no tensor",
                 "; sum it up or take its mean");
    if (mode_ != Mode::train) return;
    const at::Tensor value = scalar.detach().reshape({}).to(at::kDouble, false, /*copy=*/true);
    NamedSum& all = metrics_[name];
    if (replayed_) all = {};  // a hook on the host, which reports anew
    all.sum = all.sum.defined() ? all.sum.add(value) : value, ++all.count;
  }

  KeyValueCache* cache() const override { return cache_; }

  // Of the passes that follow; null: they compute whole sequences.
  void use_cache(KeyValueCache* cache) { cache_ = cache; }
  // `replayed`: the device repeats recorded work, which writes the same figures again; nobody calls metric().
  void begin(int64_t step, Mode mode, std::vector<Visit> visits, bool replayed = false) {
    step_ = step, mode_ = mode, visits_ = std::move(visits), at_ = 0, replayed_ = replayed;
    batches_.clear();
    if (mode == Mode::train && !replayed) metrics_.clear();
  }
  // Before a training step: what the loss's backward starts with.
  void begin_terms(double seed_gradient) { terms_.begin(seed_gradient); }
  // Before a unit's forward: false if it will run again for its backward.
  void count_terms(bool counts) { counts_terms_ = counts; }
  const LossTerms& loss_terms() const { return terms_; }
  // For steps that are recorded: whoever asks for random numbers has not said so.
  void refuse_random() { random_ = false; }
  void set_batch(int64_t micro, Batch batch) { batches_[micro] = std::move(batch); }
  const Batch& batch_of(int64_t micro) const { return batches_.at(micro); }
  void drop_batch(int64_t micro) { batches_.erase(micro); }
  void next_visit() { ++at_; }
  const NamedSums& metrics() const { return metrics_; }

 private:
  uint64_t seed_;
  const UnitList* units_;
  const Recompute* recompute_;
  const std::vector<Builder::SequenceCut> activation_cuts_;
  const std::string policy_id_;
  bool random_ = true;
  int64_t step_ = 0;
  Mode mode_ = Mode::train;
  std::vector<Visit> visits_;
  size_t at_ = 0;  // index of the current visit
  std::map<int64_t, Batch> batches_;
  NamedSums metrics_;
  KeyValueCache* cache_ = nullptr;
  LossTerms terms_;
  bool counts_terms_ = true, replayed_ = false;
};

}  // namespace drivetrain
