// The part of LocalGroup for all_to_all with counts: slices of any length, 0 included. Nothing here waits.
#include <drivetrain/toolkit/host_memory/copies.h>

#include <algorithm>
#include <numeric>

#include "group.h"

namespace drivetrain::local {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 47;

// What stands before slice `index`.
int64_t before(const int64_t* counts, int64_t index) { return std::accumulate(counts, counts + index, int64_t{0}); }
int64_t before(const std::vector<int64_t>& counts, int64_t index) { return before(counts.data(), index); }

}  // namespace

// What one member sends to another is what that one expects of it. All members look at all pairs in one order, so all
// of them name the same one. Counts come from the peers' memory: none is used before this.
void LocalGroup::compare_counts(const Task& task) const {
  const int64_t turn = task.call.turn;
  for (int64_t from = 0; from < size(); ++from)
    for (int64_t to = 0; to < size(); ++to) {
      const int64_t sent = counts_.sent(from, turn)[to], expected = counts_.received(to, turn)[from];
      if (sent == expected && sent >= 0 && sent < kMostElements) continue;
      host_->give_up(
          task.call.where(label_),
          task.call.disagreement(label_) + toolkit::counts_differ(task.dtype(), ranks_[static_cast<size_t>(from)], sent,
                                                                  ranks_[static_cast<size_t>(to)], expected));
    }
}

// A member that sends nothing needs no memory that peers can reach.
void LocalGroup::match_counts(Task& task) const {
  bool reachable = true;
  for (int64_t p = 0; p < size(); ++p) {
    const int64_t* const sent = counts_.sent(p, task.call.turn);
    const int64_t longest = *std::max_element(sent, sent + size());
    reachable &= longest == 0 || member(p).call(task.call.turn).in.mapped();
    task.longest = std::max(task.longest, longest);
  }
  task.route = reachable || size() == 1 ? Route::pull : Route::windows;
}

// Only what is used is looked up: a member whose buffers nobody uses may have left.
void LocalGroup::pull_counts(const Task& task) const {
  const int64_t element = task.element(), turn = task.call.turn;
  for (int64_t i = 0; i < size(); ++i) {
    const int64_t p = (me_ + i) % size();  // not all from the same rank at once
    const int64_t* const sent = counts_.sent(p, turn);
    const int64_t count = task.counts.received[static_cast<size_t>(p)];
    if (count == 0) continue;
    const char* const source =
        p == me_ ? task.source() : address_of(member(p).call(turn).in, before(sent, size()) * element, p);
    copy_bytes(task.target() + before(task.counts.received, p) * element, source + before(sent, me_) * element,
               count * element);
  }
}

// One window's elements of every slice, from `begin` on.
void LocalGroup::stage_counts(const Task& task, int64_t begin, char* to) const {
  const int64_t element = task.element();
  for (int64_t j = 0; j < size(); ++j) {
    const int64_t length = std::min(task.piece, task.counts.sent[static_cast<size_t>(j)] - begin);
    if (j == me_ || length <= 0) continue;
    stream_bytes(to + j * task.piece * element, task.source() + (before(task.counts.sent, j) + begin) * element,
                 length * element);
  }
}

// This rank's own slice does not pass its window.
void LocalGroup::consume_counts(const Task& task, int64_t begin) const {
  const int64_t element = task.element(), number = windows_ + task.consumed;
  for (int64_t p = 0; p < size(); ++p) {
    const int64_t length = std::min(task.piece, task.counts.received[static_cast<size_t>(p)] - begin);
    if (length <= 0) continue;
    const char* const source = p == me_ ? task.source() + (before(task.counts.sent, me_) + begin) * element
                                        : window(p, number) + me_ * task.piece * element;
    copy_bytes(task.target() + (before(task.counts.received, p) + begin) * element, source, length * element);
  }
}

// That a member writes into memory of its own; of calls that may share the memory of their results: 0.
int64_t LocalGroup::out_elements(const Task& task, int64_t p) const {
  switch (task.call.kind) {
    case CallKind::all_reduce:
      return task.call.count;
    case CallKind::all_to_all:
      return task.call.count * size();
    case CallKind::all_to_all_counts:
      return before(counts_.received(p, task.call.turn), size());
    default:
      return 0;
  }
}

}  // namespace drivetrain::local
