#include <drivetrain/testkit/monitor/suite.h>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>

#include <drivetrain/error.h>
#include <drivetrain/monitor.h>
#include <drivetrain/plan_record.h>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/keeper.h>
#include <drivetrain/testkit/kit/temp_folder.h>

namespace drivetrain::test {
namespace {
namespace of_monitor {  // other suites have cases of the same names

namespace fs = std::filesystem;

constexpr int64_t kSteps = 12;

// A monitor with a run's folder of its own; what it writes there, and to the log.
struct Watched {
  Watched(const Subject& subject, const std::string& output_dir) : folder(output_dir) {
    monitor = installed_plugins().make<Monitor>(Monitor::kKind, subject.name, subject.options, host.services);
    RunFacts run;
    run.train_steps = kSteps, run.train_batch_size = 8, run.micro_batch_size = 8, run.accumulation = 1;
    PlanRecord context(ModelFacts{}, run);
    monitor->plan(context);
    for (const auto& refusal : context.refusals()) ADD_FAILURE() << "refuses the run: " << refusal.text;
  }
  void begin(int64_t first_step = 1) const {
    monitor->on_event({"run_begin", first_step - 1,
                       Value::Object{{"output_dir", folder},
                                     {"train_steps", kSteps},
                                     {"steps_per_print", 2},
                                     {"terminal", false},
                                     {"parameters", 1234},
                                     {"first_step", first_step}}});
  }
  // Steps [first, last].
  void steps(int64_t first, int64_t last) const {
    for (int64_t step = first; step <= last; ++step) monitor->on_event(step_event(step));
  }
  void end(const char* reason = "done") const {
    monitor->on_event({"run_end", kSteps, Value::Object{{"reason", reason}, {"seconds", 1.5}}});
  }
  static Event step_event(int64_t step) {
    const auto x = static_cast<double>(step);
    Value data =
        Value::Object{{"step", step},    {"loss", 4 / x},         {"grad_norm", 0.5 + 1 / x},        {"lr", 1e-3},
                      {"tokens", 512},   {"step_s", 0.25},        {"tokens_per_s", 2048.},           {"tgs", 2048.},
                      {"tflops", 0.125}, {"flops_formula", "6N"}, {"peak_memory_bytes", 1024 * step}};
    if (step % 4 == 0) data.set("valid_loss", 3 / x);
    return {"step", step, data};
  }

  const std::string folder;
  Host host;
  std::shared_ptr<Monitor> monitor;
};

std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  std::error_code none;
  for (const auto& entry : fs::recursive_directory_iterator(folder, none))
    if (entry.is_regular_file()) {
      std::ifstream file(entry.path(), std::ios::binary);
      files[entry.path().lexically_relative(folder).string()] = {std::istreambuf_iterator<char>(file), {}};
    }
  return files;
}

std::map<std::string, std::string> whole_run(const Subject& subject) {
  const TempFolder folder;
  {
    const Watched watched(subject, folder.path());
    watched.begin(), watched.steps(1, kSteps), watched.end();
  }
  return files_of(folder.path());
}

void check_runs(const Subject& subject) {
  for (const char* reason : {"done", "signal"}) {
    const TempFolder folder;
    const Watched watched(subject, folder.path());
    watched.begin(), watched.steps(1, kSteps), watched.end(reason);
  }
  const TempFolder failed;  // a run that fails has no end
  const Watched watched(subject, failed.path());
  watched.begin(), watched.steps(1, 3);
}

// Further events, further figures, and figures that are no number, as they come where something is not finite.
void check_unknown_events(const Subject& subject) {
  const TempFolder folder;
  const Watched watched(subject, folder.path());
  watched.begin();
  watched.monitor->on_event({"an event of a later version", 0, Value::Object{{"a", Value::array()}}});
  watched.monitor->on_event({"another one", 0, Value()});
  Event odd = Watched::step_event(1);
  for (const char* figure : {"loss", "grad_norm", "tflops"}) odd.data.set(figure, Value());
  odd.data.set("a figure of a plugin", std::numeric_limits<double>::infinity());
  odd.data.set("eval/a set/loss", std::numeric_limits<double>::quiet_NaN());
  odd.data.set("skipped", true);
  watched.monitor->on_event(odd);
  Event few{"step", 2, Value::Object{{"step", 2}}};
  watched.monitor->on_event(few);
  watched.steps(3, kSteps), watched.end();
}

void check_all_is_written(const Subject& subject) {
  const TempFolder folder;
  std::map<std::string, std::string> at_the_end;
  {
    const Watched watched(subject, folder.path());
    watched.begin(), watched.steps(1, kSteps), watched.end();
    at_the_end = files_of(folder.path());
  }
  EXPECT_EQ(files_of(folder.path()), at_the_end) << "files after the object is gone, and after run_end";
}

// Stopped after step 4 of 12, and killed after step 7 without a checkpoint: it goes on at step 5.
void check_goes_on(const Subject& subject) {
  const auto wanted = whole_run(subject);
  if (wanted != whole_run(subject)) return left_out("files after a stop", "two equal runs have different files");
  const TempFolder folder;
  Keeper keeper, again;
  {
    const Watched before(subject, folder.path());
    before.begin(), before.steps(1, 4);
    before.monitor->state(keeper), before.monitor->state(again);
    EXPECT_TRUE(again.holds_the_same_as(keeper)) << "state changes when it is visited";
    before.steps(5, 7);
  }
  {
    const Watched after(subject, folder.path());
    keeper.loading = true;
    after.monitor->state(keeper);
    EXPECT_EQ(keeper.loaded, keeper.names) << "names that are loaded are those that were saved, in their order";
    after.begin(5), after.steps(5, kSteps), after.end();
  }
  EXPECT_EQ(files_of(folder.path()), wanted) << "files of a run that was stopped and went on";
}

// As long as it lives no file of this process grows beyond so many bytes: a disk that becomes full.
class SmallDisk {
 public:
  explicit SmallDisk(size_t bytes) : signal_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  SmallDisk(const SmallDisk&) = delete;
  ~SmallDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, signal_);
  }

 private:
  rlimit before_ = {};
  void (*const signal_)(int);
};

// No error at all from one that writes no files there.
void check_failing_files(const Subject& subject) {
  const auto files = whole_run(subject);
  if (files.empty()) return left_out("files that cannot be written", "the monitor writes none into the run's folder");
  const auto error = [&](const std::string& output_dir) -> std::string {
    try {
      const Watched watched(subject, output_dir);
      watched.begin(), watched.steps(1, kSteps), watched.end();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::io) << e.what();
      return e.what();
    }
    return "";
  };
  const TempFolder folder;
  std::ofstream(folder / "a file") << "x";
  EXPECT_NE(error(folder / "a file").find("a file"), std::string::npos)
      << "where the run's folder is none, the error names the file";
  for (const auto& [name, text] : files) {
    if (text.empty()) continue;
    const TempFolder full;
    std::string said;
    {
      const SmallDisk disk(text.size() / 2);
      said = error(full.path());
    }
    EXPECT_NE(said.find(full.path()), std::string::npos)
        << "on a disk that becomes full, the error names the place; found \"" << said << "\"";
  }
}

// A run with the monitor, and one without.
void check_changes_nothing(const Subject& subject) {
  const TempFolder folder;
  std::vector<std::string> weights;
  for (const bool with : {false, true}) {
    Value config =
        parse_json(R"({"train_steps": 4, "seed": 5, "train_micro_batch_size_per_gpu": 2, "steps_per_print": 2,
        "model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 37,
                  "max_position_embeddings": 8}},
        "dataset": {"type": "synthetic", "params": {"seq_length": 8}}, "checkpoint_policy": false,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}})",
                   "suite");
    Value monitors = Value::array();
    if (with) monitors.items().push_back(Value::Object{{"type", subject.name}, {"params", subject.options}});
    if (subject.name != "jsonl") monitors.items().push_back("jsonl");
    config.set("monitors", monitors.items().empty() ? Value(false) : monitors);
    config.set("output_dir", folder.path(with ? "with" : "without"));
    const TrainedRun run = subject.train(config, 1);
    std::string text;
    for (const Value& line : run.metrics)
      for (const char* name : {"loss", "grad_norm", "lr"})
        if (subject.name != "jsonl") text += line.find(name)->to_json() + " ";
    std::ifstream file(run.weights_file(), std::ios::binary);
    weights.push_back(text + std::string(std::istreambuf_iterator<char>(file), {}));
  }
  EXPECT_FALSE(weights[0].empty());
  EXPECT_TRUE(weights[1] == weights[0]) << "figures or final weights of a run with the monitor differ";
}

}  // namespace of_monitor
}  // namespace

Suite monitor_suite() {
  using namespace of_monitor;
  return {
      {"takes_the_events_of_a_run", check_runs},
      {"leaves_alone_what_it_does_not_know", check_unknown_events},
      {"all_is_written_when_the_run_ends", check_all_is_written},
      {"state_survives_a_stop", check_goes_on},
      {"names_a_file_that_cannot_be_written", check_failing_files},
      {"changes_no_bit_of_a_run", check_changes_nothing},
  };
}

}  // namespace drivetrain::test
