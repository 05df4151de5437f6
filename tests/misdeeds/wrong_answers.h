// Kinds that are asked around the computation - for rows, rates, an order, whether a save is due - and misbehave there.
#pragma once

#include <ATen/ops/full.h>

#include <limits>

#include <drivetrain/checkpoint_policy.h>
#include <drivetrain/dataset.h>
#include <drivetrain/lr_schedule.h>
#include <drivetrain/monitor.h>
#include <drivetrain/plan_context.h>
#include <drivetrain/schedule.h>

#include "misdeeds/deed.h"

namespace drivetrain::misdeeds {

class WrongDataset : public Wrong<Dataset> {
 public:
  using Wrong::Wrong;
  DatasetFacts open(const RunFacts&, const ModelFacts&) override {
    deed_.at("open");
    DatasetFacts facts;
    facts.seq_length = 8;
    facts.notes = Value::object();
    return facts;
  }
  void read(const BatchRequest& request, Batch& batch) override {
    const bool now = request.step == 3 || deed_.waits_for_a_file() || deed_.is_ever("slow");
    if (now) deed_.at("read");
    const auto longs = at::TensorOptions(at::kLong);
    batch.tokens_BS = at::full({request.rows, 8}, 1, now && deed_.is("float") ? longs.dtype(at::kFloat) : longs);
    if (!(now && deed_.is("no labels")))
      batch.labels_BS = at::full({request.rows, now && deed_.is("short") ? 7 : 8}, 2, longs);
    if (now && deed_.is("unannounced documents")) batch.cu_seqlens = {0, 8, 16, 24, 32};
    if (now && deed_.is("late position")) batch.position_ids_BS = at::full({request.rows, 8}, 1, longs);
  }
};

class WrongMonitor : public Wrong<Monitor> {
 public:
  using Wrong::Wrong;
  void on_event(const Event& event) override {
    steps_ += event.type == "step";
    if (event.type == "step" && event.step == 2) deed_.at("on_event");
  }
  void state(StateVisitor& visitor) override {
    deed_.at("state");
    visitor.integer("steps", steps_);
  }

 private:
  int64_t steps_ = 0;
};

class WrongLrSchedule : public Wrong<LrSchedule> {
 public:
  using Wrong::Wrong;
  Hyper at(const Progress&, const Hyper& base) const override {
    deed_.at("at");
    Hyper hyper = base;
    if (deed_.is("nan")) hyper.lr = std::numeric_limits<double>::quiet_NaN();
    if (deed_.is("negative")) hyper.lr = -hyper.lr;
    if (deed_.is("own rate")) hyper.lr = 0.5;
    if (deed_.is("own decay")) hyper.weight_decay = 0.5;
    return hyper;
  }
};

// Keeps every checkpoint; saves where its deed says so.
class WrongCheckpointPolicy : public Wrong<CheckpointPolicy> {
 public:
  using Wrong::Wrong;
  bool due(const SaveMoment& moment) override {
    deed_.at("due");
    return (deed_.is("save") && moment.step == 2) || (deed_.is("save at the end") && moment.last);
  }
  std::vector<bool> keep(const std::vector<StoredTag>& tags) override {
    deed_.at("keep");
    return std::vector<bool>(tags.size(), true);
  }
};

// Micro-batch after micro-batch, on one stage or on two.
class WrongSchedule : public Wrong<Schedule> {
 public:
  using Wrong::Wrong;
  void plan(PlanContext& ctx) override {
    if (two()) ctx.claim_axis(kAxis, 2, PlanContext::Reads::same, PlanContext::kStagePlace);
  }
  int64_t stages() const override {
    deed_.at("stages");
    return two() ? 2 : 1;
  }
  int64_t chunks() const override {
    deed_.at("chunks");
    return 1;
  }
  int64_t piece(int64_t stage, int64_t) const override {
    deed_.at("piece");
    return deed_.is("same piece") ? 0 : stage;
  }
  std::vector<int64_t> partition(const std::vector<double>&) const override {
    deed_.at("partition");
    return two() ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0};
  }
  Program program(int64_t stage, int64_t micro_batches, Pass pass) const override {
    deed_.at("program");
    const bool train = pass == Pass::train, first = stage == 0;
    Program list;
    for (int16_t m = 0; m < micro_batches; ++m) {
      list.push_back({Op::load, m});
      if (!first) list.push_back({Op::recv_forward, m});
      list.push_back({Op::forward, m});
      // The other stage gives a gradient only for what it was sent.
      if (train && two() && first) list.push_back({Op::recv_backward, m});
      if (two() && first) list.push_back({Op::send_forward, m});
      if (train && !deed_.is("no backward")) list.push_back({Op::backward, m});
      if (train && !first) list.push_back({Op::send_backward, m});
    }
    return list;
  }
  int64_t slots(int64_t, int64_t) const override {
    deed_.at("slots");
    return deed_.is("many slots") ? int64_t{1} << 50 : 1;
  }

 private:
  bool two() const { return deed_.is("waiting") || deed_.is("same piece"); }
};

}  // namespace drivetrain::misdeeds
