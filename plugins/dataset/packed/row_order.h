// Which pieces of documents row r of a run is made of, for any r: a pure function of the documents and the seed.
//
// The documents, in the order of a keyed permutation, are cut into windows, and each window is arranged into rows by
// itself. An epoch has every row once: the windows one after another, the rows of each permuted. The first epoch takes
// the windows in their order, later ones permute them. All epochs have the same rows in another order: attention does
// not reach beyond a document, so a document's company in its row means nothing, and the number of rows of each window,
// which finding a row needs, is counted once.
//
// Memory: 8 bytes per window, and the two windows used last. Thread: one at a time.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include <drivetrain/dataset.h>

#include "window.h"

namespace drivetrain::packed {

struct Arrangement {
  Method method = Method::best_fit;
  int64_t seq_length = 0;
  int64_t window = 0;      // documents, at least 1
  int64_t batch_rows = 1;  // length_groups: rows that should be of similar length
  uint64_t seed = 0;
};

class RowOrder {
 public:
  // `documents` outlives it and is not empty.
  RowOrder(const Documents& documents, const Arrangement& arrangement);

  // Counts the rows of the next windows, on several threads, until they have `documents` documents together or all are
  // counted. Error(config) if all are counted and there is no row.
  void count_up_to(int64_t documents);
  bool counted_all() const { return counted_windows() == windows_; }

  // Of the windows that are counted. `cut`: documents in several pieces; `empty`: without a position.
  struct Counted {
    int64_t documents = 0, positions = 0, rows = 0, cut = 0, empty = 0;
  };
  const Counted& counted() const { return counted_; }

  // Row r >= 0 of the run. Counts windows as far as needed. Written over what was in `pieces`.
  void row(int64_t r, std::vector<Piece>& pieces);
  // Of row r, from 0. Counts all windows if r is not among the rows that are counted.
  int64_t epoch(int64_t r);

 private:
  struct Place {
    int64_t epoch = 0, window = 0, first = 0, row = 0;  // `first`: the number of the window's first row in the run
  };
  Place find(int64_t r);
  int64_t permuted(const Place& place, int64_t rows) const;
  int64_t counted_windows() const { return static_cast<int64_t>(ends_.size()); }
  int64_t first_document(int64_t window) const;
  void count(int64_t windows);
  void enter(int64_t epoch);
  std::shared_ptr<const Window> make(int64_t window) const;
  std::shared_ptr<const Window> cached(int64_t window);
  uint64_t key(const char* what, int64_t epoch, int64_t window) const;

  const Documents& documents_;
  const Arrangement arrangement_;
  const int64_t documents_count_, windows_;
  Counted counted_;
  std::vector<int64_t> ends_;  // rows of the windows up to and with each of those that are counted

  int64_t epoch_ = 0;  // the later epoch whose order is in the next two
  std::vector<int64_t> epoch_order_, epoch_ends_;
  struct Cached {
    int64_t window = -1;
    std::shared_ptr<const Window> made;
  };
  std::array<Cached, 2> cache_;  // the last used first
};

}  // namespace drivetrain::packed
