#include "window.h"

#include <algorithm>
#include <numeric>

namespace drivetrain::packed {
namespace {

// A bin for every item.
Bins alone(size_t items) {
  Bins bins{std::vector<int32_t>(items + 1), std::vector<int32_t>(items)};
  std::iota(bins.begin.begin(), bins.begin.end(), 0);
  std::iota(bins.items.begin(), bins.items.end(), 0);
  return bins;
}

}  // namespace

Window::Window(Method method, int64_t S, std::vector<int64_t> documents, std::vector<int64_t> lengths)
    : S_(S), documents_(std::move(documents)), lengths_(std::move(lengths)) {
  for (const int64_t length : lengths_) positions_ += length, empty_ += length == 0;
  if (method == Method::fixed)
    arrange_fixed();
  else
    arrange_pieces(method);
}

void Window::arrange_fixed() {
  begin_.assign(1, 0);
  for (const int64_t length : lengths_) {
    const int64_t first = begin_.back(), end = first + length;
    cut_ += length > 0 && first / S_ != (end - 1) / S_;
    begin_.push_back(end);
  }
  rows_ = (positions_ + S_ - 1) / S_;
}

void Window::arrange_pieces(Method method) {
  std::vector<int32_t> owners, sizes;  // of what is left of documents beyond full rows
  int64_t full = 0;
  for (size_t i = 0; i < lengths_.size(); ++i) {
    cut_ += lengths_[i] > S_;
    if (lengths_[i] >= S_) {
      full_rows_.push_back(full += lengths_[i] / S_);
      long_documents_.push_back(static_cast<int64_t>(i));
    }
    if (const int64_t rest = lengths_[i] % S_; rest > 0) {
      owners.push_back(static_cast<int32_t>(i));
      sizes.push_back(static_cast<int32_t>(rest));
    }
  }
  bins_ = method == Method::best_fit ? best_fit_decreasing(sizes, static_cast<int32_t>(S_)) : alone(sizes.size());
  if (method == Method::length_groups)
    std::stable_sort(bins_.items.begin(), bins_.items.end(),
                     [&](int32_t a, int32_t b) { return sizes[as_size(a)] > sizes[as_size(b)]; });
  for (int32_t& item : bins_.items) item = owners[as_size(item)];
  rows_ = full + static_cast<int64_t>(bins_.begin.size()) - 1;
}

void Window::fixed_row(int64_t row, std::vector<Piece>& pieces) const {
  const int64_t end = std::min((row + 1) * S_, positions_);
  for (int64_t at = row * S_; at < end;) {
    const size_t i = as_size(std::upper_bound(begin_.begin(), begin_.end(), at) - begin_.begin() - 1);
    const int64_t stop = std::min(begin_[i + 1], end);
    pieces.push_back({documents_[i], at - begin_[i], stop - at});
    at = stop;
  }
}

void Window::row(int64_t row, std::vector<Piece>& pieces) const {
  pieces.clear();
  if (!begin_.empty()) return fixed_row(row, pieces);
  const int64_t full = full_rows_.empty() ? 0 : full_rows_.back();
  if (row < full) {
    const size_t j = as_size(std::upper_bound(full_rows_.begin(), full_rows_.end(), row) - full_rows_.begin());
    const int64_t before = j == 0 ? 0 : full_rows_[j - 1];
    pieces.push_back({documents_[as_size(long_documents_[j])], (row - before) * S_, S_});
    return;
  }
  const size_t bin = as_size(row - full);
  for (size_t at = as_size(bins_.begin[bin]); at < as_size(bins_.begin[bin + 1]); ++at) {
    const size_t i = as_size(bins_.items[at]);
    const int64_t rest = lengths_[i] % S_;
    pieces.push_back({documents_[i], lengths_[i] - rest, rest});
  }
}

}  // namespace drivetrain::packed
