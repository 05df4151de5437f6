// A window: some documents, arranged into rows of S positions. Every document of a window is in its rows, and no other.
// Memory: 20 bytes per document. Deterministic; const calls from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "best_fit.h"

namespace drivetrain::packed {

inline size_t as_size(int64_t x) { return static_cast<size_t>(x); }

enum class Method {
  best_fit,       // several whole documents per row
  fixed,          // documents one after another, cut every S positions
  length_groups,  // one document per row, the longest first
  none,           // one document per row
};

// Positions [first, first + count) of a document, one after another in a row.
struct Piece {
  int64_t document = 0, first = 0, count = 0;
};

class Window {
 public:
  // `documents`: any numbers, which pieces name; `lengths`: positions of each, from 0. At most 2^31 - 2 of them.
  Window(Method method, int64_t S, std::vector<int64_t> documents, std::vector<int64_t> lengths);

  int64_t rows() const { return rows_; }
  // The pieces of a row in their order, S positions together or less. Written over what was in `pieces`.
  void row(int64_t row, std::vector<Piece>& pieces) const;

  int64_t positions() const { return positions_; }    // of all documents
  int64_t cut_documents() const { return cut_; }      // that are in more than one piece
  int64_t empty_documents() const { return empty_; }  // without a position: in no row

 private:
  void arrange_pieces(Method method);
  void arrange_fixed();
  void fixed_row(int64_t row, std::vector<Piece>& pieces) const;

  int64_t S_, rows_ = 0, positions_ = 0, cut_ = 0, empty_ = 0;
  std::vector<int64_t> documents_, lengths_;
  // Method fixed: where each document begins in the sequence of all of them, and the end of the last.
  std::vector<int64_t> begin_;
  // The other methods. Rows that a document fills alone come first: full_rows_[j] of them up to and with the document
  // of index long_documents_[j]. Then come the bins of what documents have beyond such rows.
  std::vector<int64_t> full_rows_, long_documents_;
  Bins bins_;
};

}  // namespace drivetrain::packed
