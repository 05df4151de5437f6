#include "row_order.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include <drivetrain/random.h>

#include <drivetrain/toolkit/permutation.h>

namespace drivetrain::packed {
namespace {

constexpr int64_t kWindowsAtOnce = 64;  // that are counted between two looks at what is wanted

uint32_t low(uint64_t x) { return static_cast<uint32_t>(x); }
uint32_t high(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

}  // namespace

RowOrder::RowOrder(const Documents& documents, const Arrangement& arrangement)
    : documents_(documents),
      arrangement_(arrangement),
      documents_count_(documents.count()),
      windows_((documents_count_ + arrangement.window - 1) / arrangement.window) {}

uint64_t RowOrder::key(const char* what, int64_t epoch, int64_t window) const {
  const uint64_t site = arrangement_.seed ^ hash_name(what), e = static_cast<uint64_t>(epoch),
                 w = static_cast<uint64_t>(window);
  const auto words = philox({low(e), high(e), low(w), high(w)}, {low(site), high(site)});
  return uint64_t{words[1]} << 32 | words[0];
}

// Windows are of equal size, to one document.
int64_t RowOrder::first_document(int64_t window) const {
  const int64_t size = documents_count_ / windows_, more = documents_count_ % windows_;
  return window * size + std::min(window, more);
}

std::shared_ptr<const Window> RowOrder::make(int64_t window) const {
  const Permutation order(documents_count_, key("packed: documents", 0, 0));
  const int64_t first = first_document(window), count = first_document(window + 1) - first;
  std::vector<int64_t> documents(as_size(count)), lengths(as_size(count));
  std::vector<std::pair<int64_t, int64_t>> ascending(as_size(count));  // a source reads its lengths faster so
  for (int64_t i = 0; i < count; ++i) ascending[as_size(i)] = {documents[as_size(i)] = order(first + i), i};
  std::sort(ascending.begin(), ascending.end());
  for (const auto& [document, i] : ascending) lengths[as_size(i)] = documents_.length(document);
  return std::make_shared<Window>(arrangement_.method, arrangement_.seq_length, std::move(documents),
                                  std::move(lengths));
}

std::shared_ptr<const Window> RowOrder::cached(int64_t window) {
  if (cache_[0].window == window) return cache_[0].made;
  std::swap(cache_[0], cache_[1]);
  if (cache_[0].window != window) cache_[0] = {window, make(window)};
  return cache_[0].made;
}

void RowOrder::count(int64_t windows) {
  const int64_t first = counted_windows();
  std::vector<Counted> found(as_size(std::min(windows, windows_ - first)));
  const auto look = [&](int64_t i, const Window& w) {
    const int64_t documents = first_document(first + i + 1) - first_document(first + i);
    found[as_size(i)] = {documents, w.positions(), w.rows(), w.cut_documents(), w.empty_documents()};
  };
  if (found.size() == 1)
    look(0, *cached(first));  // most likely the one that is read next
  else
    at::parallel_for(0, static_cast<int64_t>(found.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) look(i, *make(first + i));
    });
  for (const Counted& c : found) {
    counted_.documents += c.documents, counted_.positions += c.positions, counted_.rows += c.rows;
    counted_.cut += c.cut, counted_.empty += c.empty;
    ends_.push_back(counted_.rows);
  }
  if (counted_all() && counted_.rows == 0)
    throw fail(ErrorCode::config, "dataset/packed: none of the ", documents_count_,
               " documents has a token to predict. Use documents of two tokens and more");
}

void RowOrder::count_up_to(int64_t documents) {
  while (!counted_all() && counted_.documents < documents) {
    const int64_t missing = std::min(documents, documents_count_) - counted_.documents;
    count(std::clamp<int64_t>(missing * windows_ / documents_count_, 1, kWindowsAtOnce));
  }
}

void RowOrder::enter(int64_t epoch) {
  if (epoch_ == epoch) return;
  epoch_ = epoch;
  epoch_order_.clear(), epoch_ends_.clear();
  const Permutation order(windows_, key("packed: windows", epoch, 0));
  for (int64_t i = 0, end = 0; i < windows_; ++i) {
    const int64_t window = order(i);
    epoch_order_.push_back(window);
    epoch_ends_.push_back(end += ends_[as_size(window)] - (window == 0 ? 0 : ends_[as_size(window - 1)]));
  }
}

int64_t RowOrder::epoch(int64_t r) {
  if (r < counted_.rows) return 0;
  count_up_to(documents_count_);
  return r / counted_.rows;
}

RowOrder::Place RowOrder::find(int64_t r) {
  while (!counted_all() && counted_.rows <= r) {
    // As many windows as are missing if all are like those that are counted.
    const int64_t missing = r - counted_.rows;
    const int64_t windows = counted_.rows == 0 ? 1 : missing / std::max<int64_t>(1, counted_.rows / counted_windows());
    count(std::clamp<int64_t>(windows, 1, kWindowsAtOnce));
  }
  Place place;
  const std::vector<int64_t>* ends = &ends_;
  int64_t in_epoch = r;
  if (r >= counted_.rows) {
    place.epoch = r / counted_.rows;
    in_epoch = r % counted_.rows;
    enter(place.epoch);
    ends = &epoch_ends_;
  }
  const size_t at = as_size(std::upper_bound(ends->begin(), ends->end(), in_epoch) - ends->begin());
  place.window = place.epoch == 0 ? static_cast<int64_t>(at) : epoch_order_[at];
  place.row = in_epoch - (at == 0 ? 0 : (*ends)[at - 1]);
  place.first = r - place.row;
  return place;
}

// The row of the window that stands at place.row.
int64_t RowOrder::permuted(const Place& place, int64_t rows) const {
  const uint64_t rows_key = key("packed: rows", place.epoch, place.window);
  if (arrangement_.method != Method::length_groups) return Permutation(rows, rows_key)(place.row);
  // The rows of the window fall to the end of a batch, whole batches and the beginning of one. The longest rows end the
  // batch, the shortest begin the last; whole batches keep their rows and are permuted.
  const int64_t B = arrangement_.batch_rows;
  const int64_t head = std::min(rows, (B - place.first % B) % B), batches = (rows - head) / B;
  const int64_t batch = (place.row - head) / B;
  if (place.row < head || batch >= batches) return place.row;
  return head + Permutation(batches, rows_key)(batch) * B + (place.row - head) % B;
}

void RowOrder::row(int64_t r, std::vector<Piece>& pieces) {
  const Place place = find(r);
  const auto window = cached(place.window);
  window->row(permuted(place, window->rows()), pieces);
}

}  // namespace drivetrain::packed
