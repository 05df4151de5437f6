// `drivetrain bench context`: attention over a sequence that ranks share, by every plugin for that, in turns with one
// rank that attends to all of it alone, with as many threads as each of them has, while the others wait.
//
// A round counts as long as it took the slowest rank. Before that each plugin's values have been compared with the
// whole's. Needs at least two ranks: alone it becomes `launch -n N --bench context`.
#include <algorithm>
#include <cstdlib>

#include <drivetrain/context_parallel.h>
#include <drivetrain/toolkit/text.h>

#include "bench/machine.h"
#include "bench/split_attention.h"
#include "bench/table.h"
#include "bench/timing.h"

namespace drivetrain {
namespace {

// What --OPTION names, or what is the default of its kind for the device.
std::string default_plugin(const RankAlone& rank, const std::string& kind) {
  for (const KnownPlugin& plugin : rank.registry().known())
    if (plugin.kind == kind && plugin.is_default && (plugin.device.empty() || plugin.device == rank.device_name()))
      return plugin.name;
  throw fail(ErrorCode::plugin, "bench context: no ", kind, " plugin is the default for ", rank.device_name());
}

struct ContextTimes {
  std::string name;
  std::vector<double> forward, both;  // seconds of each round
};

class ContextTimer {
 public:
  ContextTimer(RankAlone& rank, Group& group, const Attention& attention, WholeAttention& whole,
               std::vector<std::unique_ptr<SplitAttention>>& splits)
      : rank_(rank), group_(group), attention_(attention), whole_(whole), splits_(splits) {}

  // Rank 0's alone first, then the plugins'; complete on rank 0 only.
  std::vector<ContextTimes> run(int64_t rounds) {
    alone(true);  // every rank, for the comparison; a warm-up too
    for (const auto& split : splits_) split->check(whole_);
    std::vector<ContextTimes> times(1 + splits_.size());
    times[0].name = "one rank alone";
    for (size_t i = 0; i < splits_.size(); ++i) times[1 + i].name = splits_[i]->name();
    const bool first = rank_.environment().rank == 0;
    for (int64_t round = 0; round < rounds; ++round) {
      times[0].forward.push_back(timed([&] {
        if (first) alone(false);
      }));
      times[0].both.push_back(timed([&] {
        if (first) alone(true);
      }));
      for (size_t i = 0; i < splits_.size(); ++i) {
        times[1 + i].forward.push_back(timed([&] { splits_[i]->forward(); }));
        times[1 + i].both.push_back(timed([&] { splits_[i]->both(); }));
      }
    }
    for (ContextTimes& one : times)
      for (std::vector<double>* list : {&one.forward, &one.both}) *list = slowest(*list);
    return times;
  }

 private:
  void alone(bool backward) {
    const AttentionArgs args = whole_.args();
    const AttentionState state = attention_.forward(whole_.q, whole_.k, whole_.v, args);
    whole_.out = state.out;
    if (!backward) return;
    const Tensors grads = attention_.backward(whole_.dout, state, args);
    whole_.dq = grads[0], whole_.dk = grads[1], whole_.dv = grads[2];
  }

  double timed(const TimedWork& work) {
    group_.barrier();
    return seconds_of(rank_.device(), work);
  }

  std::vector<double> slowest(const std::vector<double>& mine) {
    std::vector<double> list = mine;
    for (const auto& theirs : rank_.gather(mine))
      for (size_t i = 0; i < theirs.size(); ++i) list[i] = std::max(list[i], theirs[i]);
    return list;
  }

  RankAlone& rank_;
  Group& group_;
  const Attention& attention_;
  WholeAttention& whole_;
  std::vector<std::unique_ptr<SplitAttention>>& splits_;
};

void fill_context(BenchReport& report, const std::vector<ContextTimes>& times) {
  TextTable table({"context_parallel", "forward", "of alone", "and backward", "of alone", "least to most"});
  Value list = Value::array();
  for (const ContextTimes& one : times) {
    const Spread forward = spread_of(one.forward), both = spread_of(one.both),
                 of_forward = spread_of(ratios(one.forward, times[0].forward)),
                 of_both = spread_of(ratios(one.both, times[0].both));
    table.row({one.name, seconds_text(forward.median), formatted("%.3f", of_forward.median), seconds_text(both.median),
               formatted("%.3f", of_both.median),
               concat(formatted("%.3f", of_both.min), " to ", formatted("%.3f", of_both.max))});
    Value value = Value::object();
    value.set("context_parallel", &one == &times[0] ? Value() : Value(one.name));
    value.set("forward_s", forward.to_value());
    value.set("forward_backward_s", both.to_value());
    value.set("forward_ratio", of_forward.to_value());
    value.set("ratio", of_both.to_value());
    list.items().push_back(std::move(value));
  }
  report.json.set("results", std::move(list));
  report.text += table.text();
}

// Every installed one with all ranks; those that refuse the shape are named instead.
std::vector<std::unique_ptr<SplitAttention>> make_splits(const RankAlone& rank, const std::shared_ptr<Attention>& inner,
                                                         const std::shared_ptr<Communicator>& communicator,
                                                         const WholeAttention& whole, std::string& refusals) {
  std::vector<std::unique_ptr<SplitAttention>> list;
  for (const std::string& name : rank.registry().names(ContextParallel::kKind)) {
    try {
      list.push_back(std::make_unique<SplitAttention>(name, rank, inner, communicator, whole));
    } catch (const Error& e) {
      if (e.code() == ErrorCode::communication) throw;
      refusals += concat(name, " is left out: ", e.what(), "\n");
    }
  }
  return list;
}

}  // namespace

BenchReport bench_context(const BenchArguments& arguments) {
  const int64_t rounds = arguments.whole("--rounds");
  const RankEnvironment environment = read_rank_environment();
  if (environment.world_size == 1 && !std::getenv("RANK")) become_launcher(arguments, "context");
  if (environment.world_size == 1 || arguments.has("-n"))
    throw fail(ErrorCode::config, "bench context is one of ", environment.world_size, " ranks that others started",
               arguments.has("-n") ? "; leave out -n" : ", and wants at least 2: drivetrain bench context -n 2");
  RankAlone rank(arguments, environment);
  WholeAttention whole(arguments, rank.device());
  const std::string attention = arguments.text("--attention", default_plugin(rank, Attention::kKind)),
                    communicator = default_plugin(rank, Communicator::kKind);
  Value facts = Value::object();
  for (const auto& [key, value] :
       {std::pair<const char*, Value>{"shape", whole.text()}, {"attention", attention}, {"rounds", rounds}})
    facts.set(key, value);
  rank.meet(facts);
  const BenchMachine machine = describe_machine();  // every rank waits here, so that nobody is seen at work
  const auto between = rank.registry().create<Communicator>(communicator, nullptr, rank.services());
  const auto inner = rank.registry().create<Attention>(attention, nullptr, rank.services());
  std::vector<int64_t> ranks;
  for (int64_t r = 0; r < environment.world_size; ++r) ranks.push_back(r);
  const GroupPtr group = between->make_group(ranks, "bench");
  BenchReport report = report_on("context", machine);
  try {
    std::string refusals;
    auto splits = make_splits(rank, inner, between, whole, refusals);
    const auto times = ContextTimer(rank, *group, *inner, whole, splits).run(rounds);
    report.json.set("ranks", environment.world_size);
    report.json.set("device", rank.device_name());
    report.json.set("shape", whole.text());
    report.json.set("attention", attention);
    report.json.set("rounds", rounds);
    report.text += concat(environment.world_size, " ranks, ", communicator, ", attention/", attention, "; ",
                          whole.text(), "; in turns, ", rounds, " rounds, each as long as its slowest rank, medians\n");
    fill_context(report, times);
    report.text += refusals;
  } catch (const std::exception& e) {  // the others learn the reason at once
    between->abort(e.what());
    throw;
  }
  report.silent = environment.rank != 0;
  return report;
}

}  // namespace drivetrain
