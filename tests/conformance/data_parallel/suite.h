// What every implementation of data_parallel must do, whatever it shares out: parameters whole and right inside the
// spans of their units, gradients that are the sum over all rows, each element updated exactly once per set of ranks
// that share it.
//
// run_data_parallel_suite takes any installed plugin by name, with options; how a rank is driven stands in
// rank.h. Values are exact, so there is no tolerance. With support/poisoned_memory.h in the program,
// storage that was freed is NaN.
#pragma once

#include <thread>

#include "conformance/data_parallel/rank.h"
#include "rendezvous/rendezvous.h"

namespace drivetrain::test {

// Every element of every parameter exactly once among the ranks that share it; as many chunks with the same parameters
// on all ranks.
inline void check_held(const HeldPieces& held, int64_t ranks) {
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
    for (const ToyParam& p : toy_params()) {
      if (key.first != p.name) continue;
      int64_t numel = 1;
      for (const int64_t size : p.shape) numel *= size;
      EXPECT_EQ(at, numel) << key.first << " (" << key.second << ")";
    }
  }
  EXPECT_EQ(names.size(), toy_params().size());
}

inline void check_data_parallel(const DataParallelTrial& trial) {
  SCOPED_TRACE(text_of(trial));
  at::set_num_threads(1);
  const auto store = make_local_store();
  HeldPieces held;
  std::vector<std::string> errors(static_cast<size_t>(trial.ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < trial.ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        at::set_num_threads(1);
        DataParallelRank(trial, rank, store).run(held);
      } catch (const std::exception& e) {
        errors[static_cast<size_t>(rank)] = e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t rank = 0; rank < errors.size(); ++rank)
    EXPECT_EQ(errors[rank], "") << "rank " << rank << " of " << text_of(trial);
  if (std::all_of(errors.begin(), errors.end(), [](const std::string& e) { return e.empty(); }))
    check_held(held, trial.ranks);
}

// Slots of 16 bits, sums over ranks of 16 bits, and both: what crosses ranks is then a copy, or the slots themselves.
inline void check_narrow_gradients(DataParallelTrial trial) {
  const std::pair<at::ScalarType, at::ScalarType> types[] = {
      {at::kFloat, at::kBFloat16}, {at::kBFloat16, at::kFloat}, {at::kBFloat16, at::kBFloat16}};
  for (const auto& [grad, reduce] : types)
    for (const bool share : {true, false})
      for (const int64_t every : {0, 1}) {
        trial.grad = grad, trial.reduce = reduce, trial.share = share, trial.reduce_every = every;
        check_data_parallel(trial);
      }
}

// `multiple`: of ranks that the options want.
inline void run_data_parallel_suite(const std::string& name, const std::string& options, int64_t multiple = 1) {
  for (const int64_t ranks : {1, 2, 3, 4}) {
    if (ranks % multiple != 0) continue;
    DataParallelTrial trial{.name = name, .options = options, .ranks = ranks};
    check_data_parallel(trial);
    trial.accumulation = 3;
    for (const bool share : {true, false})
      for (const std::optional<int64_t> every : {std::optional<int64_t>(), std::optional<int64_t>(0),
                                                 std::optional<int64_t>(1), std::optional<int64_t>(2)}) {
        trial.share = share, trial.reduce_every = every;
        check_data_parallel(trial);
      }
    trial.reduce_every.reset();
    trial.forwards_first = true;
    check_data_parallel(trial);
    trial.forwards_first = false, trial.param = at::kBFloat16;
    check_data_parallel(trial);
    check_narrow_gradients(trial);
  }
}

}  // namespace drivetrain::test
