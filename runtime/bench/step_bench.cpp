// `drivetrain bench step`: a run as `train` composes it, without a run folder and without monitors, timed step by step.
#include "app/commands.h"
#include "app/facts.h"
#include "app/plan_text.h"
#include "app/rank_start.h"
#include "bench/machine.h"
#include "bench/phase_watch.h"
#include "bench/products.h"
#include "bench/step_config.h"
#include "bench/table.h"
#include "compose/gather_values.h"
#include "device/device_runtime.h"
#include "observe/memory.h"
#include "step/trainer.h"

namespace drivetrain {
namespace {

constexpr int64_t kWatchedAtTheEnd =
    3;  // on an accelerator: watched steps are not the fastest, so they are further ones
constexpr std::pair<Phase, const char*> kShownPhases[] = {{Phase::load, "load"},
                                                          {Phase::forward, "forward"},
                                                          {Phase::backward, "backward"},
                                                          {Phase::finish, "finish"},
                                                          {Phase::update, "update"}};

double member(const Value& data, const char* key) { return data.find(key)->as_double(); }

// What plugins tell goes to stderr: stdout is the report's.
std::shared_ptr<Log> report_log(int64_t rank) {
  LogSettings settings = console_settings(rank);
  settings.out = settings.err;
  return make_console_log(settings);
}

// Of this rank: of its device, or of the process.
double peak_of(const Composition& run) {
  DeviceRuntime* const device = run.device_runtime();
  return device ? static_cast<double>(device->memory(run.services->device).peak_allocated) : peak_memory_bytes();
}

struct StepBench {
  // An accelerator's steps are recorded after the first few, so that more of them go before.
  StepBench(const BenchArguments& arguments, bool on_accelerator)
      : accelerator(on_accelerator),
        warmup(arguments.whole("--warmup", accelerator ? 6 : 3, 0)),
        steps(arguments.whole("--steps", 10)) {}

  int64_t train_steps() const { return warmup + steps + (accelerator ? kWatchedAtTheEnd : 0); }
  bool timed(size_t index) const {
    const auto i = static_cast<int64_t>(index);
    return i >= warmup && i < warmup + steps;
  }

  // Losses and seconds of every step; phases where they were watched and count.
  void train(Composition& run) {
    PhaseWatch watch(run.services->device);
    const std::atomic<int> no_stop = 0;
    Trainer* self = nullptr;
    const int64_t unwatched = accelerator ? warmup + steps : warmup;
    const auto watch_from_here = [&] {
      watch.begin();
      self->observe(&watch);
    };
    Trainer trainer(
        run,
        [&](int64_t step, Value data) {
          if (step > unwatched) watch.end_step();
          if (step == unwatched) watch_from_here();
          rows.push_back(std::move(data));
        },
        no_stop);
    self = &trainer;
    if (unwatched == 0) watch_from_here();
    trainer.train();
    phases = watch.seconds();
  }

  bool accelerator;
  int64_t warmup, steps;
  std::vector<Value> rows;
  std::vector<PhaseSeconds> phases;
  std::vector<double> peaks;  // memory of every rank, rank 0's first; on other ranks none
};

// What the dataset has, or -1: it does not end, or the run cannot be planned for another reason.
int64_t steps_of_dataset(const TrainRequest& request, const Registry& registry) {
  RunSettings settings = request.settings;
  settings.train_steps = 1;
  try {
    return plan_run(settings, request.chosen, registry, request.setup, Purpose::train)->data.steps;
  } catch (const Error&) {
    return -1;
  }
}

// train_steps is this command's, so that a dataset with less of them is told in its words and not the config's.
std::unique_ptr<Composition> plan_steps(const TrainRequest& request, const Registry& registry, const StepBench& bench) {
  try {
    return plan_run(request.settings, request.chosen, registry, request.setup, Purpose::train);
  } catch (const Error&) {
    const int64_t there = steps_of_dataset(request, registry);
    if (there < 0 || there >= bench.train_steps()) throw;
    throw fail(ErrorCode::config, "bench step: --steps ", bench.steps, " after --warmup ", bench.warmup,
               bench.accelerator ? concat(" and ", kWatchedAtTheEnd, " watched ones at the end") : "", " are ",
               bench.train_steps(), " steps, the dataset has ", there, ". Give fewer, or a longer dataset");
  }
}

// What is said of a run; all figures are rank 0's or agreed by all ranks.
class StepReport {
 public:
  StepReport(const Composition& run, const StepBench& bench, const Products& products)
      : run_(run), bench_(bench), products_(products) {
    std::vector<double> seconds;
    for (size_t i = 0; i < bench.rows.size(); ++i)
      if (bench.timed(i)) seconds.push_back(member(bench.rows[i], "step_s"));
    step_s_ = spread_of(seconds);
    slots_ = static_cast<double>(run.batch.train_batch_size * run.run.seq_length);
    ranks_ = static_cast<double>(run.run.world_size);
    const double flops = slots_ * (run.facts.flops_per_token_fixed +
                                   run.facts.flops_per_token_S * static_cast<double>(run.run.seq_length));
    tflops_ = flops / step_s_.median / ranks_ / 1e12;
    share_ = tflops_ * 1e12 / products.rate();
  }

  void fill(BenchReport& report) const {
    Value& json = report.json;
    json.set("run", run_value());
    json.set("step_s", step_s_.to_value());
    json.set("phases_s", phases_value());
    if (run_.capture.on) json.set("device_idle_share_at_least", idle_share_at_least());
    json.set("tokens_per_s", slots_ / step_s_.median);
    json.set("tgs", slots_ / step_s_.median / ranks_);
    json.set("tflops", tflops_);
    json.set("flops_formula", run_.facts.flops_formula);
    json.set("products", products_.to_value());
    json.set("share_of_products", share_);
    json.set("peak_memory_bytes", static_cast<int64_t>(member(bench_.rows.back(), "peak_memory_bytes")));
    json.set("peak_memory_bytes_by_rank", peaks_value());
    json.set("warmup", bench_.warmup);
    json.set("steps", steps_value());
    report.text += text();
  }

 private:
  Value run_value() const {
    Value value = Value::object();
    value.set("parameters", run_.facts.parameters);
    value.set("ranks", run_.run.world_size);
    value.set("device", run_.run.device);
    value.set("dtype", c10::toString(run_.services->dtypes.param));
    value.set("micro_batch_size", run_.batch.micro_batch_size);
    value.set("accumulation", run_.batch.accumulation);
    value.set("seq_length", run_.run.seq_length);
    value.set("layers", run_.facts.num_layers);
    value.set("hidden_size", run_.facts.hidden_size);
    value.set("vocab_size", run_.facts.vocab_size);
    Value plugins = Value::array();
    for (const ChosenPlugin& plugin : run_.chosen)
      if (plugin.selection.enabled) plugins.items().push_back(plugin.id());
    value.set("plugins", std::move(plugins));
    return value;
  }

  Value phases_value() const {
    Value value = Value::object();
    for (const auto& [phase, name] : kShownPhases) value.set(name, phase_median(phase));
    return value;
  }

  double phase_median(Phase phase) const {
    std::vector<double> seconds;
    for (const PhaseSeconds& one : bench_.phases) seconds.push_back(one[static_cast<size_t>(phase)]);
    return spread_of(seconds).median;
  }

  // Of recorded steps: what lies between the replays, when the device has nothing to do. No mark tells when a replay
  // begins on the device, so that the time to launch it is not in it.
  double idle_share_at_least() const {
    double idle = 0, all = 0;
    for (const PhaseSeconds& step : bench_.phases)
      for (int p = 0; p < kPhases; ++p) {
        const auto phase = static_cast<Phase>(p);
        all += step[static_cast<size_t>(p)];
        if (phase != Phase::forward && phase != Phase::backward && phase != Phase::update)
          idle += step[static_cast<size_t>(p)];
      }
    return idle / all;
  }

  Value peaks_value() const {
    Value list = Value::array();
    for (const double bytes : bench_.peaks) list.items().push_back(static_cast<int64_t>(bytes));
    return list;
  }

  // Every step with its loss in full, and its phases where they were watched.
  Value steps_value() const {
    Value list = Value::array();
    const size_t unwatched = bench_.rows.size() - bench_.phases.size();
    for (size_t i = 0; i < bench_.rows.size(); ++i) {
      Value one = Value::object();
      for (const char* key : {"step", "loss", "grad_norm", "tokens", "step_s"}) one.set(key, *bench_.rows[i].find(key));
      one.set("timed", bench_.timed(i));
      if (i >= unwatched) {
        Value phases = Value::object();
        for (const auto& [phase, name] : kShownPhases)
          phases.set(name, bench_.phases[i - unwatched][static_cast<size_t>(phase)]);
        one.set("phases_s", std::move(phases));
      }
      list.items().push_back(std::move(one));
    }
    return list;
  }

  std::string text() const {
    TextTable phases({"phase", "median", "of the step"});
    for (const auto& [phase, name] : kShownPhases) {
      const double seconds = phase_median(phase);
      phases.row({name, seconds_text(seconds), number_text("%.1f %%", 100 * seconds / step_s_.median)});
    }
    phases.row(
        {"step", seconds_text(step_s_.median), concat(seconds_text(step_s_.min), " to ", seconds_text(step_s_.max))});
    const Value &first = bench_.rows.front(), &last = bench_.rows.back();
    const std::string recorded =
        run_.capture.on
            ? concat(
                  "the step is recorded: forward is part of backward; the device is idle between its replays for at ",
                  "least ", number_text("%.1f %%", 100 * idle_share_at_least()), " of it\n")
            : "";
    return concat(plan_headline(run_), "\n", phases.text(), bench_.steps, " steps after ", bench_.warmup,
                  " of warm-up\n", recorded, "throughput: ", number_text("%.0f", slots_ / step_s_.median),
                  " tokens/s, TGS ", number_text("%.0f", slots_ / step_s_.median / ranks_), ", ",
                  number_text("%.4f", tflops_), " TFLOPS per rank (", run_.facts.flops_formula, ")\n",
                  "matrix products alone would take ", seconds_text(products_.seconds), " at ",
                  number_text("%.4f", products_.rate() / 1e12), " TFLOPS, so the step reaches ",
                  number_text("%.1f %%", 100 * share_),
                  " of their rate\npeak memory: ", number_text("%.3f GB", member(last, "peak_memory_bytes") / 1e9),
                  "\nloss: ", number_text("%.6f", member(first, "loss")), " in step 1, ",
                  number_text("%.6f", member(last, "loss")), " in step ", bench_.rows.size(), "\n");
  }

  const Composition& run_;
  const StepBench& bench_;
  const Products& products_;
  Spread step_s_;
  double slots_ = 0, ranks_ = 1, tflops_ = 0, share_ = 0;
};

std::vector<double> peaks_of_ranks(const TrainRequest& request, const Composition& run) {
  std::vector<double> peaks;
  for (const Value& bytes :
       gather_values(*request.setup.store, "bench/step/peak", request.setup.environment, Value(peak_of(run)),
                     static_cast<double>(request.settings.rendezvous_timeout_s)))
    peaks.push_back(bytes.as_double());
  return peaks;
}

// The steps, what they took of memory, and then the products, which would raise that.
Products measure(const TrainRequest& request, Composition& run, StepBench& bench) {
  try {
    build_run(run);
    bench.train(run);
    bench.peaks = peaks_of_ranks(request, run);
    return time_products(run);
  } catch (const std::exception& e) {  // the others learn the reason at once instead of waiting for a time-out
    const std::string reason = e.what();
    if (run.communicator)
      run.communicator->abort(
          concat("rank ", request.setup.environment.rank, " stopped: ", reason.substr(0, reason.find('\n'))));
    throw;
  }
}

}  // namespace

BenchReport bench_step(const BenchArguments& arguments) {
  TrainRequest request;
  Problems problems;
  request.config = bench_step_config(arguments, request.config_path, problems);
  const Value* device = request.config.find("device");
  StepBench bench(arguments, device && device->is_string() && device->as_string() != "cpu");
  request.config.set("train_steps", bench.train_steps());
  const auto registry = choose_for(request, arguments.all("--plugin-path"), problems);
  request.setup.log = report_log(request.setup.environment.rank);
  start_process(request);
  const auto run = plan_steps(request, *registry, bench);
  meet_ranks(request, *run, resolved_facts(*run, *registry));
  const BenchMachine machine = look_at_machine();  // every rank waits here, so that nobody is seen at work
  const Products products = measure(request, *run, bench);
  BenchReport report = report_on("step", machine);
  StepReport(*run, bench, products).fill(report);
  report.silent = request.setup.environment.rank != 0;
  return report;
}

}  // namespace drivetrain
