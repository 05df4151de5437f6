#include <drivetrain/testkit/data_parallel/suite.h>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <map>

#include <drivetrain/error.h>

#include <drivetrain/testkit/data_parallel/chain.h>
#include <drivetrain/testkit/kit/decorators.h>
#include <drivetrain/testkit/kit/rank_threads.h>
#include <drivetrain/testkit/kit/stop.h>

namespace drivetrain::test {
namespace {

// Every element of every parameter exactly once among the ranks that share it; as many chunks with the same parameters
// on all ranks.
void check_held(const HeldPieces& held, int64_t ranks, const std::vector<ToyParam>& params) {
  for (const HeldOrder& order : held.orders) {
    EXPECT_EQ(order.chunks, held.orders.front().chunks)
        << "lists of parameters to update differ in number between ranks";
    EXPECT_EQ(order.names, held.orders.front().names) << "ranks name different parameters";
  }
  EXPECT_EQ(held.orders.size(), static_cast<size_t>(ranks));
  std::map<std::pair<std::string, std::string>, std::vector<std::pair<int64_t, int64_t>>> ranges;
  for (const HeldPiece& piece : held.list) {
    auto& list = ranges[{piece.param, piece.others}];
    if (piece.end > piece.begin) list.emplace_back(piece.begin, piece.end);
  }
  std::set<std::string> names;
  for (auto& [key, list] : ranges) {
    names.insert(key.first);
    std::sort(list.begin(), list.end());
    int64_t at = 0;
    for (const auto& [begin, end] : list) {
      EXPECT_EQ(begin, at) << key.first << " (" << key.second << "): elements held twice or by nobody";
      at = end;
    }
    for (const ToyParam& p : params) {
      if (key.first != p.name) continue;
      int64_t numel = 1;
      for (const int64_t size : p.shape) numel *= size;
      EXPECT_EQ(at, numel) << key.first << " (" << key.second << ")";
    }
  }
  EXPECT_EQ(names.size(), params.size());
}

// A trial of each number of ranks that the subject's options allow.
void for_all_ranks(const Subject& subject, const std::function<void(DataParallelTrial)>& check) {
  ASSERT_LE(subject.rank_multiple, 4) << "the suite has up to 4 ranks";
  for (const int64_t ranks : {1, 2, 3, 4})
    if (ranks % subject.rank_multiple == 0)
      check({.name = subject.name, .options = subject.options.to_json(), .ranks = ranks});
}

// Summing over ranks now and then, with values that ranks share and without.
void check_micro_batches(DataParallelTrial trial) {
  trial.accumulation = 3;
  for (const bool share : {true, false})
    for (const std::optional<int64_t> every :
         {std::optional<int64_t>(), std::optional<int64_t>(0), std::optional<int64_t>(1), std::optional<int64_t>(2)}) {
      trial.share = share, trial.reduce_every = every;
      check_data_parallel(trial);
    }
}

void check_forwards_first(DataParallelTrial trial) {
  trial.accumulation = 3, trial.share = false, trial.forwards_first = true;
  check_data_parallel(trial);
}

void check_masters(DataParallelTrial trial) {
  trial.accumulation = 3, trial.share = false, trial.param = at::kBFloat16;
  check_data_parallel(trial);
}

// Slots of 16 bits, sums over ranks of 16 bits, and both: what crosses ranks is then a copy, or the slots themselves.
void check_narrow_sums(DataParallelTrial trial) {
  trial.accumulation = 3, trial.param = at::kBFloat16;
  const std::pair<at::ScalarType, at::ScalarType> types[] = {
      {at::kFloat, at::kBFloat16}, {at::kBFloat16, at::kFloat}, {at::kBFloat16, at::kBFloat16}};
  for (const auto& [grad, reduce] : types)
    for (const bool share : {true, false})
      for (const int64_t every : {0, 1}) {
        trial.grad = grad, trial.reduce = reduce, trial.share = share, trial.reduce_every = every;
        check_data_parallel(trial);
      }
}

using DataParallelCheck = void (*)(DataParallelTrial);
constexpr std::pair<const char*, DataParallelCheck> kDataParallelChecks[] = {
    {"sums_gradients_and_keeps_parameters", [](DataParallelTrial trial) { check_data_parallel(trial); }},
    {"sums_over_several_micro_batches", check_micro_batches},
    {"several_forwards_before_their_backwards", check_forwards_first},
    {"keeps_masters_beside_parameters_of_16_bits", check_masters},
    {"gradients_and_sums_of_16_bits", check_narrow_sums},
    {"frozen_parameters_cost_nothing", check_frozen},
};

}  // namespace

static std::map<int64_t, HeldBytes> held_after(const DataParallelTrial& trial) {
  SCOPED_TRACE(text_of(trial));
  at::set_num_threads(1);
  const auto store = make_memory_store();
  HeldPieces held;
  const std::vector<std::string> errors =
      on_threads(trial.ranks, [&](int64_t rank) { run_data_parallel_rank(trial, rank, store, held); });
  for (size_t rank = 0; rank < errors.size(); ++rank)
    EXPECT_EQ(errors[rank], "") << "rank " << rank << " of " << text_of(trial);
  if (std::all_of(errors.begin(), errors.end(), [](const std::string& e) { return e.empty(); }))
    check_held(held, trial.ranks, toy_params(trial.frozen_factor));
  return held.bytes;
}

void check_data_parallel(const DataParallelTrial& trial) { held_after(trial); }

void check_frozen(DataParallelTrial trial) {
  trial.accumulation = 2;
  for (const at::ScalarType param : {at::kFloat, at::kBFloat16})
    for (const bool share : {true, false}) {
      trial.param = param, trial.share = share, trial.frozen_factor = 1;
      const auto small = held_after(trial);
      trial.frozen_factor = 7;
      for (const auto& [rank, bytes] : held_after(trial)) {
        SCOPED_TRACE(concat("rank ", rank, " of ", text_of(trial)));
        EXPECT_EQ(bytes.gradients, small.at(rank).gradients) << "bytes of gradients, with larger frozen parameters";
        EXPECT_EQ(bytes.masters, small.at(rank).masters) << "bytes of masters, with larger frozen parameters";
        EXPECT_EQ(bytes.planned, small.at(rank).planned)
            << "bytes of gradients and optimizer that it plans, with larger frozen parameters";
      }
    }
}

Suite data_parallel_suite() {
  Suite suite;
  for (const auto& [name, check] : kDataParallelChecks)
    suite.push_back({name, [check = check](const Subject& subject) { for_all_ranks(subject, check); }});
  suite.push_back(state_survives_a_stop(2));
  suite.push_back(decorators_compose(2));
  return suite;
}

}  // namespace drivetrain::test
