// One rank under suite.h: drives a data_parallel plugin through the public headers as the runtime does - plan twice,
// attach, fill trainables and frozen ones, then steps of visits with evaluations between them - on the exact model of
// chain.h. Ranks are threads with the local communicator.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <drivetrain/data_parallel.h>
#include <drivetrain/services.h>

namespace drivetrain::test {

struct DataParallelTrial {
  std::string name, options = "{}";
  int64_t ranks = 1, accumulation = 1;
  std::optional<int64_t> reduce_every = std::nullopt;
  at::ScalarType param = at::kFloat;                      // float32 masters below where it is another
  at::ScalarType grad = at::kFloat, reduce = at::kFloat;  // slots, and what crosses ranks
  bool share = true;                                      // of communicator/local
  bool forwards_first = false;                            // all forwards of two micro-batches before their backwards
  int64_t frozen_factor = 1;                              // how much larger frozen parameters are (chain.h)
  bool recorded = false;                                  // Services::recorded; steps are still computed as they are
  std::function<std::shared_ptr<DataParallel>(const Services&)> make =
      nullptr;  // null: the installed plugin of that name
};

std::string text_of(const DataParallelTrial& t);

// What a rank updates, or holds of frozen ones, for a look over all ranks.
struct HeldPiece {
  std::string param, others;  // coordinates along the axes that do not share the flat range
  int64_t begin = 0, end = 0;
};
struct HeldOrder {
  size_t chunks = 0;
  std::set<std::string> names;
};
// Bytes of gradients and masters: the most that the tensors of the contract showed at one time, and what was planned.
struct HeldBytes {
  uint64_t gradients = 0, masters = 0;
  double planned = 0;
  bool operator==(const HeldBytes&) const = default;
};
struct HeldPieces {
  std::mutex mutex;
  std::vector<HeldPiece> list;
  std::vector<HeldOrder> orders;       // one per rank
  std::map<int64_t, HeldBytes> bytes;  // by rank
};

// Runs one rank of the trial and adds what it holds. Error or a failed expectation for whatever is wrong.
void run_data_parallel_rank(const DataParallelTrial& trial, int64_t rank, const std::shared_ptr<Store>& store,
                            HeldPieces& held);

}  // namespace drivetrain::test
