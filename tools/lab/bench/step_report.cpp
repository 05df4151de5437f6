#include "bench/step_report.h"

#include <optional>
#include <utility>

#include <drivetrain/toolkit/text.h>

#include "bench/pipeline_ideal.h"
#include "bench/table.h"
#include "report/plan_text.h"

namespace drivetrain {
namespace {

constexpr std::pair<Phase, const char*> kShownPhases[] = {
    {Phase::load, "load"},         {Phase::forward, "forward"},
    {Phase::backward, "backward"}, {Phase::backward_weight, "backward_weight"},
    {Phase::wait, "wait"},         {Phase::finish, "finish"},
    {Phase::update, "update"}};

double member(const Value& data, const char* key) { return data.find(key)->as_double(); }

// What is said of a run; all figures are rank 0's or agreed by all ranks.
class StepReport {
 public:
  StepReport(const PreparedRun& run, const StepMeasure& measure, const Products& products, const StepLimit& limit)
      : plan_(run.plan),
        measure_(measure),
        products_(products),
        limit_(limit),
        medians_(measure.median_phases()),
        ideal_(pipeline_ideal(run, measure.phases_of_ranks)) {
    std::vector<double> seconds;
    for (size_t i = 0; i < measure.rows.size(); ++i)
      if (measure.timed(i)) seconds.push_back(member(measure.rows[i], "step_s"));
    step_s_ = spread_of(seconds);
    slots_ = static_cast<double>(run.plan.batch.train_batch_size * run.plan.run.seq_length);
    ranks_ = static_cast<double>(run.plan.run.world_size);
    const double flops = slots_ * run.plan.model.flops_per_token(static_cast<double>(run.plan.run.seq_length.value()));
    tflops_ = flops / step_s_.median / ranks_ / 1e12;
    share_ = tflops_ * 1e12 / products.rate();
  }

  void fill(BenchReport& report) const {
    Value& json = report.json;
    json.set("run", run_value());
    json.set("step_s", step_s_.to_value());
    json.set("phases_s", phases_value());
    if (ideal_) json.set("pipeline", pipeline_value());
    if (plan_.capture.on) json.set("device_idle_share_at_least", idle_share_at_least());
    json.set("tokens_per_s", slots_ / step_s_.median);
    json.set("tgs", slots_ / step_s_.median / ranks_);
    json.set("tflops", tflops_);
    json.set("flops_formula", plan_.model.flops_formula);
    json.set("products", products_.to_value());
    json.set("share_of_products", share_);
    json.set("limit", limit_.to_value(step_s_.median));
    json.set("peak_memory_bytes", static_cast<int64_t>(member(measure_.rows.back(), "peak_memory_bytes")));
    json.set("peak_memory_bytes_by_rank", peaks_value());
    json.set("warmup", measure_.warmup);
    json.set("steps", steps_value());
    report.text += text();
  }

 private:
  Value run_value() const {
    Value value = Value::object();
    value.set("parameters", plan_.model.parameters);
    value.set("ranks", plan_.run.world_size);
    value.set("device", plan_.run.device);
    value.set("dtype", c10::toString(plan_.dtypes.types.param));
    value.set("micro_batch_size", plan_.batch.micro_batch_size);
    value.set("accumulation", plan_.batch.accumulation);
    value.set("seq_length", plan_.run.seq_length.value());
    value.set("layers", plan_.model.num_layers);
    value.set("hidden_size", plan_.model.hidden_size);
    value.set("vocab_size", plan_.model.vocab_size);
    Value plugins = Value::array();
    for (const PlannedPlugin& plugin : plan_.plugins)
      if (plugin.enabled) plugins.items().push_back(plugin.id());
    value.set("plugins", std::move(plugins));
    value.set("notes", Value(Value::Array(plan_.notes.begin(), plan_.notes.end())));
    return value;
  }

  // What the plan says of this run, such as that loads of experts are equal by force.
  std::string notes_text() const {
    std::string text;
    for (const std::string& note : plan_.notes) text += note + "\n";
    return text;
  }

  Value phases_value() const {
    Value value = Value::object();
    for (const auto& [phase, name] : kShownPhases)
      if (shown(phase)) value.set(name, phase_median(phase));
    return value;
  }

  double phase_median(Phase phase) const { return medians_[static_cast<size_t>(phase)]; }

  // Phases that this schedule has.
  bool shown(Phase phase) const {
    return phase_median(phase) > 0 || (phase != Phase::backward_weight && phase != Phase::wait);
  }

  Value pipeline_value() const {
    Value stages = Value::array();
    for (const PipelineIdeal::Stage& stage : ideal_->stages) {
      Value one = Value::object();
      one.set("forward", stage.forward);
      one.set("backward", stage.backward);
      one.set("backward_weight", stage.backward_weight);
      stages.items().push_back(std::move(one));
    }
    Value value = Value::object();
    value.set("stages_s", std::move(stages));
    value.set("ideal_s", ideal_->seconds);
    value.set("bubble", ideal_->bubble);
    value.set("step_to_ideal", step_s_.median / ideal_->seconds);
    return value;
  }

  std::string pipeline_text() const {
    if (!ideal_) return "";
    TextTable table({"stage", "forward", "backward"});
    for (size_t i = 0; i < ideal_->stages.size(); ++i) {
      const PipelineIdeal::Stage& stage = ideal_->stages[i];
      table.row({std::to_string(i), seconds_text(stage.forward), seconds_text(stage.backward + stage.backward_weight)});
    }
    return concat(table.text(), "with these times, and messages that take none, the schedule would need ",
                  seconds_text(ideal_->seconds), " (bubble ", formatted("%.1f %%", 100 * ideal_->bubble),
                  "); the step takes ", formatted("%.3f", step_s_.median / ideal_->seconds), " of that\n");
  }

  // Of recorded steps: what lies between the replays, when the device has nothing to do. No mark tells when a replay
  // begins on the device, so that the time to launch it is not in it.
  double idle_share_at_least() const {
    double idle = 0, all = 0;
    const size_t first = measure_.phases.size() > 1 ? 1 : 0;  // the first one may wait for its batch
    for (size_t i = first; i < measure_.phases.size(); ++i)
      for (int p = 0; p < kPhases; ++p) {
        const auto phase = static_cast<Phase>(p);
        const double seconds = measure_.phases[i][static_cast<size_t>(p)];
        all += seconds;
        if (phase != Phase::forward && phase != Phase::backward && phase != Phase::update) idle += seconds;
      }
    return idle / all;
  }

  Value peaks_value() const {
    Value list = Value::array();
    for (const double bytes : measure_.peaks) list.items().push_back(static_cast<int64_t>(bytes));
    return list;
  }

  // Every step with its loss in full, and its phases where they were watched.
  Value steps_value() const {
    Value list = Value::array();
    const size_t unwatched = measure_.rows.size() - measure_.phases.size();
    for (size_t i = 0; i < measure_.rows.size(); ++i) {
      Value one = Value::object();
      for (const char* key : {"step", "loss", "grad_norm", "tokens", "step_s"})
        one.set(key, *measure_.rows[i].find(key));
      one.set("timed", measure_.timed(i));
      if (i >= unwatched) {
        Value phases = Value::object();
        for (const auto& [phase, name] : kShownPhases)
          if (shown(phase)) phases.set(name, measure_.phases[i - unwatched][static_cast<size_t>(phase)]);
        one.set("phases_s", std::move(phases));
      }
      list.items().push_back(std::move(one));
    }
    return list;
  }

  std::string text() const {
    TextTable phases({"phase", "median", "of the step"});
    for (const auto& [phase, name] : kShownPhases) {
      if (!shown(phase)) continue;
      const double seconds = phase_median(phase);
      phases.row({name, seconds_text(seconds), formatted("%.1f %%", 100 * seconds / step_s_.median)});
    }
    phases.row(
        {"step", seconds_text(step_s_.median), concat(seconds_text(step_s_.min), " to ", seconds_text(step_s_.max))});
    const Value &first = measure_.rows.front(), &last = measure_.rows.back();
    const std::string recorded =
        plan_.capture.on
            ? concat(
                  "the step is recorded: forward is part of backward; the device is idle between its replays for at ",
                  "least ", formatted("%.1f %%", 100 * idle_share_at_least()), " of it\n")
            : "";
    return concat(
        plan_headline(plan_), "\n", notes_text(), phases.text(), measure_.steps, " steps after ", measure_.warmup,
        " of warm-up\n", recorded, pipeline_text(), "throughput: ", formatted("%.0f", slots_ / step_s_.median),
        " tokens/s, TGS ", formatted("%.0f", slots_ / step_s_.median / ranks_), ", ", formatted("%.4f", tflops_),
        " TFLOPS per rank (", plan_.model.flops_formula, ")\n", "matrix products alone would take ",
        seconds_text(products_.seconds), " at ", formatted("%.4f", products_.rate() / 1e12),
        " TFLOPS, so the step reaches ", formatted("%.1f %%", 100 * share_), " of their rate\n",
        limit_.text(step_s_.median), "peak memory: ", formatted("%.3f GB", member(last, "peak_memory_bytes") / 1e9),
        "\nloss: ", formatted("%.6f", member(first, "loss")), " in step 1, ", formatted("%.6f", member(last, "loss")),
        " in step ", measure_.rows.size(), "\n");
  }

  const RunPlan& plan_;
  const StepMeasure& measure_;
  const Products& products_;
  const StepLimit& limit_;
  const PhaseSeconds medians_;
  const std::optional<PipelineIdeal> ideal_;
  Spread step_s_;
  double slots_ = 0, ranks_ = 1, tflops_ = 0, share_ = 0;
};

}  // namespace

PhaseSeconds StepMeasure::median_phases() const {
  PhaseSeconds medians = {};
  for (size_t p = 0; p < medians.size(); ++p) {
    std::vector<double> seconds;
    for (const PhaseSeconds& one : phases) seconds.push_back(one[p]);
    medians[p] = spread_of(seconds).median;
  }
  return medians;
}

void report_steps(const PreparedRun& run, const StepMeasure& measure, const Products& products, const StepLimit& limit,
                  BenchReport& report) {
  StepReport(run, measure, products, limit).fill(report);
}

}  // namespace drivetrain
