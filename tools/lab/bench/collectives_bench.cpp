// `drivetrain bench collectives`: every collective of one or several communicators over sizes and kinds of memory.
//
// Of a size and a collective all cases are timed in turns, each round as many calls in a row as fill some milliseconds;
// a round counts as long as it took the slowest rank. Before that each case has been called once, with its values
// compared, and six times more: the warm-up.
// Needs at least two ranks: alone it becomes `launch -n N --bench collectives`.
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include <drivetrain/toolkit/text.h>

#include "bench/collective_case.h"
#include "bench/machine.h"
#include "bench/rank_alone.h"
#include "bench/table.h"
#include "bench/timing.h"
#include "config_files/load.h"

namespace drivetrain {
namespace {

constexpr double kRoundSeconds = 5e-3;  // a round's calls take about that long
constexpr int64_t kMostCalls = 2000;
constexpr int64_t kWarmupCalls = 7;

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream text(list);
  for (std::string word; std::getline(text, word, ',');)
    if (!word.empty()) words.push_back(word);
  return words;
}

struct CollectivesRequest {
  explicit CollectivesRequest(const BenchArguments& arguments)
      : collectives(arguments.has("--op") ? words_of(arguments.text("--op")) : collective_names()),
        rounds(arguments.whole("--rounds")) {
    for (const std::string& name : collectives) bus_factor(name, 2);
    for (const std::string& size : words_of(arguments.text("--sizes"))) sizes.push_back(bytes_of_text("--sizes", size));
    if (arguments.has("--sizes") && (arguments.has("--from") || arguments.has("--to")))
      throw fail(ErrorCode::config, "bench collectives: --sizes and --from, --to exclude each other");
    if (!arguments.has("--sizes"))
      sizes = payload_sizes(bytes_of_text("--from", arguments.text("--from")),
                            bytes_of_text("--to", arguments.text("--to")));
    if (collectives.empty() || sizes.empty())
      throw fail(ErrorCode::config, "bench collectives: ", sizes.empty() ? "--sizes" : "--op", " names none");
  }

  std::vector<std::string> collectives;
  std::vector<int64_t> sizes;
  int64_t rounds;
};

// A communicator as a run would get it from its config: `communicator` of `--set`, or what --communicator names, or the
// default of the device.
struct BenchedCommunicator {
  std::string name;
  std::shared_ptr<void> options;
  Value facts;
  std::shared_ptr<Communicator> object;
  GroupPtr group;
};

BenchedCommunicator choose_communicator(const RankAlone& rank, const BenchArguments& arguments,
                                        const std::string& name) {
  Problems problems;
  Value config = Value::object();
  if (!name.empty()) config.set("communicator", name);
  int count = 0;
  for (const std::string& set : arguments.all("--set")) {
    if (set.rfind("communicator.", 0) != 0)
      throw fail(ErrorCode::config, "bench collectives: --set wants communicator.OPTION=VALUE, got \"", set, "\"");
    apply_set(config, set, ++count, problems);
  }
  const auto selections = select_plugins(config, {{Communicator::kKind, KindRule::exactly_one}},
                                         rank.registry().known(), rank.device_name(), problems);
  problems.throw_if_any();
  const Selection& selection = selections.front();
  const OptionTable& table = rank.registry().options(selection.kind, selection.name);
  BenchedCommunicator chosen;
  chosen.name = selection.name;
  chosen.options = table.parse(selection.params, selection.kind + "/" + selection.name, selection.path, problems);
  problems.throw_if_any();
  chosen.facts = rank.registry().facts(selection.kind, selection.name).to_value();
  chosen.facts.set("options", table.to_value(chosen.options.get()));
  return chosen;
}

std::vector<BenchedCommunicator> choose_communicators(const RankAlone& rank, const BenchArguments& arguments) {
  std::vector<std::string> names = words_of(arguments.text("--communicator"));
  if (names.empty()) names.push_back("");
  std::vector<BenchedCommunicator> list;
  for (const std::string& name : names) list.push_back(choose_communicator(rank, arguments, name));
  return list;
}

Value facts_of(const std::vector<BenchedCommunicator>& communicators, const CollectivesRequest& wish) {
  Value facts = Value::object(), list = Value::array(), ops = Value::array(), sizes = Value::array();
  for (const BenchedCommunicator& one : communicators) list.items().push_back(one.facts);
  for (const std::string& name : wish.collectives) ops.items().push_back(name);
  for (const int64_t bytes : wish.sizes) sizes.items().push_back(bytes);
  facts.set("communicators", std::move(list));
  facts.set("collectives", std::move(ops));
  facts.set("sizes", std::move(sizes));
  facts.set("rounds", wish.rounds);
  return facts;
}

struct CollectiveResult {
  std::string communicator, collective;
  BufferKind buffers;
  int64_t bytes, calls;
  std::vector<double> rounds;  // seconds of one call by the slowest rank
};

class CollectivesTimer {
 public:
  CollectivesTimer(RankAlone& rank, const CollectivesRequest& wish, std::vector<BenchedCommunicator>& communicators)
      : rank_(rank), wish_(wish), communicators_(communicators) {}

  std::vector<CollectiveResult> run() {
    for (const std::string& collective : wish_.collectives)
      for (const int64_t bytes : wish_.sizes) run_cases(collective, bytes);
    return std::move(results_);
  }

 private:
  struct Running {
    const BenchedCommunicator* owner;
    CollectiveCase one;
    int64_t calls = 1;
    std::vector<double> rounds;
  };

  void run_cases(const std::string& collective, int64_t bytes) {
    std::vector<Running> cases = make_cases(collective, bytes);
    for (Running& running : cases) {
      running.one.check();
      running.calls = calls_of(running);
    }
    for (int64_t round = 0; round < wish_.rounds; ++round)
      for (Running& running : cases) running.rounds.push_back(time_calls(running));
    for (Running& running : cases) note(running);
  }

  std::vector<Running> make_cases(const std::string& collective, int64_t bytes) const {
    std::vector<Running> cases;
    for (const BenchedCommunicator& communicator : communicators_)
      for (const BufferKind kind : {BufferKind::mapped, BufferKind::private_, BufferKind::once}) {
        if (kind == BufferKind::once && collective != "all_gather") continue;
        Running running{&communicator, {collective, kind, bytes, communicator.group, rank_.device()}, 1, {}};
        if (running.one.exists()) cases.push_back(std::move(running));
      }
    return cases;
  }

  double time_calls(Running& running) const {
    running.owner->group->barrier();
    const double seconds = seconds_of(rank_.device(), [&] {
      for (int64_t i = 0; i < running.calls; ++i) running.one.call();
    });
    return seconds / static_cast<double>(running.calls);
  }

  // The same on every rank: rank 0's, after a warm-up.
  int64_t calls_of(Running& running) const {
    running.calls = (kWarmupCalls - 1) / 2;
    const double seconds = std::min(time_calls(running), time_calls(running));
    const double calls = std::clamp(std::ceil(kRoundSeconds / seconds), 1.0, static_cast<double>(kMostCalls));
    const at::Tensor agreed = at::full({1}, calls, at::TensorOptions(at::kFloat).device(rank_.device()));
    running.owner->group->broadcast(agreed, 0)->wait();
    return static_cast<int64_t>(agreed.item<float>());
  }

  void note(const Running& running) {
    const auto all = rank_.gather(running.rounds);
    if (all.empty()) return;
    CollectiveResult result{running.owner->name, running.one.collective(),
                            running.one.kind(),  running.one.bytes(),
                            running.calls,       running.rounds};
    for (const auto& theirs : all)
      for (size_t i = 0; i < theirs.size(); ++i) result.rounds[i] = std::max(result.rounds[i], theirs[i]);
    results_.push_back(std::move(result));
  }

  RankAlone& rank_;
  const CollectivesRequest& wish_;
  const std::vector<BenchedCommunicator>& communicators_;
  std::vector<CollectiveResult> results_;
};

Value result_value(const CollectiveResult& result, int64_t ranks) {
  const Spread spread = spread_of(result.rounds);
  const double factor = bus_factor(result.collective, ranks), bytes = static_cast<double>(result.bytes);
  Value value = Value::object(), rounds = Value::array();
  for (const double seconds : result.rounds) rounds.items().push_back(seconds);
  value.set("communicator", result.communicator);
  value.set("op", result.collective);
  value.set("buffers", buffer_name(result.buffers));
  value.set("bytes", result.bytes);
  value.set("calls", result.calls);
  value.set("seconds", spread.to_value());
  value.set("bus_factor", factor);
  value.set("algorithm_bytes_per_s", bytes / spread.median);
  value.set("bus_bytes_per_s", factor * bytes / spread.median);
  value.set("algorithm_bits_per_s", 8 * bytes / spread.median);
  value.set("bus_bits_per_s", 8 * factor * bytes / spread.median);
  value.set("rounds_s", std::move(rounds));
  return value;
}

std::vector<std::string> result_cells(const CollectiveResult& result, int64_t ranks) {
  const Spread spread = spread_of(result.rounds);
  const double algorithm = static_cast<double>(result.bytes) / spread.median / 1e9;
  const double bus = algorithm * bus_factor(result.collective, ranks);
  return {result.collective,
          result.communicator,
          buffer_name(result.buffers),
          std::to_string(result.bytes),
          seconds_text(spread.min),
          seconds_text(spread.median),
          formatted("%.3f", algorithm),
          formatted("%.3f", bus),
          formatted("%.2f", 8 * algorithm),
          formatted("%.2f", 8 * bus)};
}

void fill_collectives(BenchReport& report, const std::vector<CollectiveResult>& results, const CollectivesRequest& wish,
                      const RankAlone& rank) {
  const int64_t ranks = rank.environment().world_size;
  TextTable table({"collective", "communicator", "buffers", "bytes", "least", "median", "algbw GB/s", "busbw GB/s",
                   "algbw Gbps", "busbw Gbps"});
  Value list = Value::array();
  for (const CollectiveResult& result : results) {
    table.row(result_cells(result, ranks));
    list.items().push_back(result_value(result, ranks));
  }
  report.json.set("ranks", ranks);
  report.json.set("device", rank.device_name());
  report.json.set("dtype", "f32");
  report.json.set("rounds", wish.rounds);
  report.json.set("results", std::move(list));
  report.text += concat(ranks, " ranks, float32, ", wish.rounds,
                        " rounds in turns, each as long as its slowest rank; bandwidths of the median; before, ",
                        kWarmupCalls, " calls of each case, values of the first compared\n", table.text());
}

}  // namespace

BenchReport bench_collectives(const BenchArguments& arguments) {
  const CollectivesRequest wish(arguments);
  const RankEnvironment environment = read_rank_environment();
  if (environment.world_size == 1 && !std::getenv("RANK")) become_launcher(arguments, "collectives");
  if (environment.world_size == 1 || arguments.has("-n"))
    throw fail(ErrorCode::config, "bench collectives is one of ", environment.world_size, " ranks that others started",
               arguments.has("-n") ? "; leave out -n" : ", and wants at least 2: drivetrain bench collectives -n 2");
  RankAlone rank(arguments, environment);
  std::vector<BenchedCommunicator> communicators = choose_communicators(rank, arguments);
  rank.meet(facts_of(communicators, wish));
  const BenchMachine machine = describe_machine();  // every rank waits here, so that nobody is seen at work
  std::vector<int64_t> ranks;
  for (int64_t r = 0; r < environment.world_size; ++r) ranks.push_back(r);
  for (BenchedCommunicator& one : communicators) {
    one.object = rank.registry().create<Communicator>(one.name, one.options.get(), rank.services());
    one.group = one.object->make_group(ranks, "bench");
  }
  BenchReport report = report_on("collectives", machine);
  try {
    fill_collectives(report, CollectivesTimer(rank, wish, communicators).run(), wish, rank);
  } catch (const std::exception& e) {  // the others learn the reason at once
    for (const BenchedCommunicator& one : communicators) one.object->abort(e.what());
    throw;
  }
  report.silent = environment.rank != 0;
  return report;
}

}  // namespace drivetrain
