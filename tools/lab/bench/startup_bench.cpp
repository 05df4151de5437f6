// `drivetrain bench startup`: from exec to the end of step 1 of a tiny model, in turns with a program that only loads
// LibTorch.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include <drivetrain/toolkit/text.h>

#include "bench/machine.h"
#include "bench/step_config.h"
#include "bench/table.h"
#include "bench/timing.h"
#include "device/open_device.h"
#include "train/run_folder.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

struct StartTimes {
  double until = 0, end = 0;  // seconds until the program wrote a line with the awaited word, and until it was gone
};

[[noreturn]] void become(const Words& words, int out) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  dup2(out, STDOUT_FILENO);
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) unsetenv(name);
  execv(argv[0], argv.data());
  _exit(127);
}

// Runs a program to its end and reads what it says. Error(io) if it fails or never says `awaited`.
StartTimes start(const Words& words, const std::string& awaited) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw fail(ErrorCode::io, "bench startup: no pipe");
  const auto begin = std::chrono::steady_clock::now();
  const auto since = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  const pid_t child = fork();
  if (child == 0) become(words, ends[1]);
  close(ends[1]);
  StartTimes times;
  std::string said;
  char buffer[4096];
  for (ssize_t n = 0; child > 0 && (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
    said.append(buffer, static_cast<size_t>(n));
    if (times.until == 0 && said.find(awaited) != std::string::npos) times.until = since();
  }
  close(ends[0]);
  int status = -1;
  if (child > 0) waitpid(child, &status, 0);
  times.end = since();
  if (child < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0 || times.until == 0)
    throw fail(ErrorCode::io, "bench startup: ", words.front(), " failed or never said \"", awaited, "\"; it said:\n",
               said);
  return times;
}

class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "drivetrain-startup-XXXXXX").string();
    if (!mkdtemp(name.data()))
      throw fail(ErrorCode::io, "bench startup: cannot make a folder in ", fs::temp_directory_path().string());
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

class Startup {
 public:
  Startup() : bin_(fs::read_symlink("/proc/self/exe").parent_path().string()) {
    write_text_file(scratch_ / "tiny.json", startup_config());
    if (!fs::exists(loader()))
      throw fail(ErrorCode::config, "bench startup compares with ", loader(),
                 ", which is not there: build or install it with the program");
  }

  double load() const { return start({loader(), torch_folder()}, "loaded").until; }

  StartTimes train(int64_t ranks) {
    const std::string run = scratch_ / concat("run", ++runs_);
    Words words{bin_ + "/drivetrain"};
    if (ranks == 1)
      words.push_back("train");
    else
      words.insert(words.end(), {"launch", "-n", std::to_string(ranks)});
    words.insert(words.end(), {scratch_ / "tiny.json", "--set", "output_dir=" + run});
    return start(words, "step 1");
  }

 private:
  std::string loader() const { return bin_ + "/drivetrain-load-libtorch"; }

  std::string bin_;
  Scratch scratch_;
  int64_t runs_ = 0;
};

}  // namespace

BenchReport bench_startup(const BenchArguments& arguments) {
  const int64_t rounds = arguments.whole("--rounds");
  std::vector<int64_t> rank_counts{1, 2};
  if (arguments.has("-n")) rank_counts = {arguments.whole("-n")};
  const BenchMachine machine = describe_machine();
  BenchReport report = report_on("startup", machine);
  Startup startup;
  TextTable table({"processes", "to the end of step 1", "to exit", "loading LibTorch", "ratio", "least to most"});
  Value list = Value::array();
  for (const int64_t ranks : rank_counts) {
    std::vector<double> loads, steps, exits;
    startup.load(), startup.train(ranks);  // from here on the files are in memory
    for (int64_t round = 0; round < rounds; ++round) {
      loads.push_back(startup.load());
      const StartTimes times = startup.train(ranks);
      steps.push_back(times.until), exits.push_back(times.end);
    }
    const Spread load = spread_of(loads), step = spread_of(steps), ratio = spread_of(ratios(steps, loads));
    table.row({std::to_string(ranks), seconds_text(step.median), seconds_text(spread_of(exits).median),
               seconds_text(load.median), formatted("%.2f", ratio.median),
               concat(formatted("%.2f", ratio.min), " to ", formatted("%.2f", ratio.max))});
    Value one = Value::object();
    one.set("ranks", ranks);
    one.set("step_1_s", step.to_value());
    one.set("exit_s", spread_of(exits).to_value());
    one.set("load_libtorch_s", load.to_value());
    one.set("ratio", ratio.to_value());
    list.items().push_back(std::move(one));
  }
  report.json.set("rounds", rounds);
  report.json.set("starts", std::move(list));
  report.text += concat("a tiny model, warm cache; in turns, ", rounds, " rounds, medians\n", table.text());
  return report;
}

}  // namespace drivetrain
