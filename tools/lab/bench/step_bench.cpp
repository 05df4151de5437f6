// `drivetrain bench step`: a run as `train` composes it, without a run folder and without monitors, timed step by step.
#include <cerrno>
#include <cstring>
#include <fstream>

#include "bench/machine.h"
#include "bench/phase_watch.h"
#include "bench/products.h"
#include "bench/step_config.h"
#include "bench/step_report.h"
#include "bench/step_trace.h"
#include "contract/device_runtime.h"
#include "observe/memory.h"
#include "plan/prepare_run.h"
#include "rendezvous/gather_values.h"
#include "report/facts.h"
#include "run/run.h"
#include "train/rank_start.h"

namespace drivetrain {
namespace {

constexpr int64_t kWatchedAtTheEnd =
    3;                          // on an accelerator: watched steps are not the fastest, so they are further ones
constexpr int64_t kTraced = 3;  // the last steps
// Of this rank: of its device, or of the process.
double peak_of(const PreparedRun& run) {
  DeviceRuntime* const device = run.device_runtime();
  return device ? static_cast<double>(device->memory(run.services->device).peak_allocated) : peak_memory_bytes();
}

struct StepBench : StepMeasure {
  // An accelerator's steps are recorded after the first few, so that more of them go before.
  StepBench(const BenchArguments& arguments, bool on_accelerator) : accelerator(on_accelerator) {
    warmup = arguments.whole("--warmup", accelerator ? 6 : 3);
    steps = arguments.whole("--steps");
  }

  int64_t first_traced() const { return std::max<int64_t>(0, train_steps() - kTraced); }  // steps before it
  int64_t train_steps() const { return warmup + steps + (accelerator ? kWatchedAtTheEnd : 0); }

  // Losses and seconds of every step; phases where they were watched and count.
  void train(Run& run) {
    PhaseWatch watch(run.services->device);
    const std::atomic<int> no_stop = 0;
    Trainer* self = nullptr;
    const int64_t unwatched = accelerator ? warmup + steps : warmup;
    const auto watch_from_here = [&] {
      watch.begin();
      self->observe(&watch);
    };
    Trainer trainer(
        trainer_parts(run),
        [&](int64_t step, Value data) {
          if (step > unwatched) watch.end_step();
          if (step == unwatched) watch_from_here();
          if (traced && step == first_traced()) trace.emplace(*traced);
          rows.push_back(std::move(data));
        },
        no_stop);
    self = &trainer;
    if (unwatched == 0) watch_from_here();
    if (traced && first_traced() == 0) trace.emplace(*traced);
    trainer.train();
    phases = watch.seconds();
    if (trace) trace_value = trace->to_value();
    trace.reset();
  }

  bool accelerator;
  const FlightRecord* traced = nullptr;  // null: no trace is asked for
  std::optional<StepTrace> trace;
  Value trace_value;
};

// What the dataset has, or -1: it does not end, or the run cannot be planned for another reason.
int64_t steps_of_dataset(const TrainRequest& request, const Registry& registry) {
  RunSettings settings = request.settings;
  settings.train_steps = 1;
  try {
    return prepare_run(settings, request.chosen, registry, request.setup, Purpose::train)->plan.data.steps;
  } catch (const Error&) {
    return -1;
  }
}

// train_steps is this command's, so that a dataset with less of them is told in its words and not the config's.
std::unique_ptr<PreparedRun> plan_steps(const TrainRequest& request, const Registry& registry, const StepBench& bench) {
  try {
    return prepare_run(request.settings, request.chosen, registry, request.setup, Purpose::train);
  } catch (const Error&) {
    const int64_t there = steps_of_dataset(request, registry);
    if (there < 0 || there >= bench.train_steps()) throw;
    throw fail(ErrorCode::config, "bench step: --steps ", bench.steps, " after --warmup ", bench.warmup,
               bench.accelerator ? concat(" and ", kWatchedAtTheEnd, " watched ones at the end") : "", " are ",
               bench.train_steps(), " steps, the dataset has ", there, ". Give fewer, or a longer dataset");
  }
}

void gather_from_ranks(const TrainRequest& request, const PreparedRun& run, StepBench& bench) {
  Value mine = Value::array();
  mine.items().push_back(Value(peak_of(run)));
  for (const double seconds : bench.median_phases()) mine.items().push_back(Value(seconds));
  for (const Value& one : gather_values(*request.setup.store, "bench/step/rank", request.setup.environment, mine,
                                        static_cast<double>(request.settings.rendezvous_timeout_s))) {
    bench.peaks.push_back(one.items().front().as_double());
    PhaseSeconds& phases = bench.phases_of_ranks.emplace_back();
    for (size_t p = 0; p < phases.size(); ++p) phases[p] = one.items()[p + 1].as_double();
  }
}

struct Alone {
  Products products;
  StepLimit limit;
};

// The steps, what they took of memory, and then products and loops, which would raise that.
Alone measure(const TrainRequest& request, Run& run, StepBench& bench) {
  try {
    build_run(run);
    bench.train(run);
    gather_from_ranks(request, run, bench);
    Alone alone{time_products(run), {}};
    alone.limit = measure_limit(run, alone.products);
    return alone;
  } catch (const std::exception& e) {  // the others learn the reason at once instead of waiting for a time-out
    const std::string reason = e.what();
    if (run.plugins.communicator)
      run.plugins.communicator->abort(
          concat("rank ", request.setup.environment.rank, " stopped: ", reason.substr(0, reason.find('\n'))));
    throw;
  }
}

// The file of --trace, made before the steps run: a place that cannot be written is told at once.
class TraceFile {
 public:
  TraceFile(const BenchArguments& arguments, const TrainRequest& request) : path_(arguments.text("--trace")) {
    if (path_.empty()) return;
    if (request.settings.device != "cpu")
      throw fail(ErrorCode::config,
                 "bench step: --trace is for runs on the CPU: it has the host's clock, and the device is ",
                 request.settings.device, "\n   `nsys profile` shows what a device does");
    if (!request.setup.flight)
      throw fail(ErrorCode::config, "bench step: --trace needs the flight record; leave out \"flight_record\": false");
    if (request.setup.environment.rank != 0) return;
    file_.open(path_, std::ios::trunc);
    if (!file_) throw cannot("created");
  }
  bool wanted() const { return !path_.empty(); }

  // On every rank. Returns the line of the report.
  std::string write(const TrainRequest& request, const Value& mine) {
    const std::vector<Value> ranks = gather_values(*request.setup.store, "bench/step/trace", request.setup.environment,
                                                   mine, static_cast<double>(request.settings.rendezvous_timeout_s));
    if (ranks.empty()) return "";
    if (!(file_ << trace_of(ranks).to_json() << "\n") || !file_.flush()) throw cannot("written");
    return concat("trace of the last steps: ", path_, "; open it in https://ui.perfetto.dev or chrome://tracing\n");
  }

 private:
  Error cannot(const char* be) const {
    return fail(ErrorCode::io, "bench step: --trace ", path_, " cannot be ", be, ": ", std::strerror(errno));
  }
  const std::string path_;
  std::ofstream file_;
};

}  // namespace

BenchReport bench_step(const BenchArguments& arguments) {
  TrainRequest request;
  join_ranks(request);
  Problems problems;
  request.config = bench_step_config(arguments, request.config_path, problems);
  const Value* device = request.config.find("device");
  StepBench bench(arguments, device && device->is_string() && device->as_string() != "cpu");
  request.config.set("train_steps", bench.train_steps());
  const auto registry = choose_for(request, arguments.all("--plugin-path"), problems);
  request.setup.log = report_log(request.setup.environment.rank);
  start_process(request);
  TraceFile trace(arguments, request);
  if (trace.wanted()) bench.traced = request.setup.flight.get();
  Run run(std::move(*plan_steps(request, *registry, bench)));
  meet_ranks(request, run, resolved_facts(run.plan, *registry));
  const BenchMachine machine = describe_machine();  // every rank waits here, so that nobody is seen at work
  const Alone alone = measure(request, run, bench);
  BenchReport report = report_on("step", machine);
  report_steps(run, bench, alone.products, alone.limit, report);
  if (trace.wanted()) report.text += trace.write(request, bench.trace_value);
  report.silent = request.setup.environment.rank != 0;
  return report;
}

}  // namespace drivetrain
