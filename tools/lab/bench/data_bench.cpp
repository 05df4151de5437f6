// `drivetrain bench data`: what the dataset of a config needs to begin, and how fast it gives batches, alone on one
// thread and without a model's work beside it.
#include <chrono>
#include <fstream>

#include <drivetrain/toolkit/text.h>

#include "bench/machine.h"
#include "bench/table.h"
#include "bench/timing.h"
#include "config_files/load.h"
#include "plan/prepare_run.h"
#include "run/run.h"
#include "train/rank_start.h"

namespace drivetrain {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Pages of this process that no file is behind. What was read of files stays in the system's page cache.
double own_memory_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("RssAnon:")) return std::stod(line.substr(8)) * 1024;
  return 0;
}

Value data_config(const BenchArguments& arguments, std::string& path, Problems& problems) {
  path = arguments.plain().front();
  Value config = load_config(path, {}, problems);
  int count = 0;
  for (const std::string& set : arguments.all("--set")) apply_set(config, set, ++count, problems);
  config.set("eval_interval", 0);
  return config;
}

struct Beginning {
  double open_s = 0, first_batch_s = 0, memory_bytes = 0;
};

class DataBench {
 public:
  DataBench(const Run& run, const Registry& registry, int64_t first_step)
      : run_(run), registry_(registry), first_step_(first_step) {}

  // Of a dataset that nobody has used yet; it is the one that is read from then on.
  Beginning begin() {
    Beginning times;
    const double memory = own_memory_bytes(), start = now();
    for (const ChosenPlugin& plugin : run_.chosen)
      if (plugin.kind() == Dataset::kKind)
        dataset_ = registry_.create<Dataset>(plugin.name(), plugin.options.get(), *run_.services);
    facts_ = dataset_->open(run_.plan.run, run_.plan.model);
    times.open_s = now() - start;
    if (facts_.steps >= 0 && first_step_ > facts_.steps)
      throw fail(ErrorCode::config, "bench data: --first-step ", first_step_, ": the dataset has ", facts_.steps,
                 " steps\n   give an earlier one");
    read(0);
    times.first_batch_s = now() - start;
    times.memory_bytes = own_memory_bytes() - memory;
    return times;
  }

  // The micro-batches of one data-parallel rank, one after another.
  double read_some(int64_t batches) {
    const double start = now();
    for (int64_t i = 0; i < batches; ++i) read(next_++);
    return now() - start;
  }

  int64_t tokens_per_batch() const { return run_.plan.run.micro_batch_size * facts_.seq_length; }
  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }
  int64_t padding() const { return padding_; }

 private:
  void read(int64_t number) {
    const RunFacts& run = run_.plan.run;
    const int64_t a_step = run.train_batch_size / run.micro_batch_size;
    BatchRequest request;
    request.step = first_step_ + number / a_step;
    if (facts_.steps >= 0) request.step = (request.step - 1) % facts_.steps + 1;
    request.first_row = number % a_step * run.micro_batch_size, request.rows = run.micro_batch_size;
    Batch batch;
    dataset_->read(request, batch);
    tokens_ += batch.tokens_BS.numel(), documents_ += batch.documents, padding_ += batch.padding;
  }

  const Run& run_;
  const Registry& registry_;
  const int64_t first_step_;
  std::shared_ptr<Dataset> dataset_;
  DatasetFacts facts_;
  int64_t next_ = 0, tokens_ = 0, documents_ = 0, padding_ = 0;
};

std::string token_speed_text(double tokens, double seconds) { return formatted("%.1fM", tokens / seconds / 1e6); }

void report_data(const DataBench& bench, const std::vector<Beginning>& beginnings, const std::vector<double>& rounds,
                 int64_t batches, BenchReport& report) {
  const auto spread = [&](double Beginning::*of) {
    std::vector<double> list;
    for (const Beginning& one : beginnings) list.push_back(one.*of);
    return spread_of(list);
  };
  const Spread open = spread(&Beginning::open_s), first = spread(&Beginning::first_batch_s),
               memory = spread(&Beginning::memory_bytes), read = spread_of(rounds);
  const auto tokens = static_cast<double>(batches * bench.tokens_per_batch());
  report.json.set("open_s", open.to_value()), report.json.set("first_batch_s", first.to_value());
  report.json.set("memory_bytes", memory.to_value());
  report.json.set("tokens_per_batch", bench.tokens_per_batch()), report.json.set("batches", batches);
  report.json.set("read_s", read.to_value()), report.json.set("tokens_per_s", tokens / read.median);
  TextTable begin({"the beginning", "min", "median", "max"});
  begin.row({"open", seconds_text(open.min), seconds_text(open.median), seconds_text(open.max)});
  begin.row({"to the first batch", seconds_text(first.min), seconds_text(first.median), seconds_text(first.max)});
  begin.row({"memory, MB", formatted("%.1f", memory.min / 1e6), formatted("%.1f", memory.median / 1e6),
             formatted("%.1f", memory.max / 1e6)});
  TextTable reading({"reading on one thread", "slowest", "median", "fastest"});
  reading.row({"tokens per second", token_speed_text(tokens, read.max), token_speed_text(tokens, read.median),
               token_speed_text(tokens, read.min)});
  report.text += concat(batches, " batches of ", bench.tokens_per_batch(), " tokens per round, ", rounds.size(),
                        " rounds\n", begin.text(), "\n", reading.text());
  if (bench.documents() == 0) return;
  const double padding = 100 * static_cast<double>(bench.padding()) / static_cast<double>(bench.tokens());
  report.json.set("documents", bench.documents()), report.json.set("padding_percent", padding);
  report.text += formatted("%.1f documents per thousand tokens, %.2f %% padding\n",
                           1e3 * static_cast<double>(bench.documents()) / static_cast<double>(bench.tokens()), padding);
}

}  // namespace

BenchReport bench_data(const BenchArguments& arguments) {
  TrainRequest request;
  join_ranks(request);
  Problems problems;
  request.config = data_config(arguments, request.config_path, problems);
  const auto registry = choose_for(request, arguments.all("--plugin-path"), problems);
  request.setup.log = report_log(0);
  start_process(request);
  const Run run(std::move(*prepare_run(request.settings, request.chosen, *registry, request.setup, Purpose::train)));
  BenchReport report = report_on("data", describe_machine());
  const int64_t rounds = arguments.whole("--rounds"), batches = arguments.whole("--batches");
  std::vector<Beginning> beginnings;
  std::vector<double> seconds;
  std::optional<DataBench> bench;
  for (int64_t i = 0; i < rounds; ++i) {
    bench.emplace(run, *registry, arguments.whole("--first-step"));
    beginnings.push_back(bench->begin());
  }
  bench->read_some(batches);  // its files are in memory from here on
  for (int64_t i = 0; i < rounds; ++i) seconds.push_back(bench->read_some(batches));
  report_data(*bench, beginnings, seconds, batches, report);
  return report;
}

}  // namespace drivetrain
