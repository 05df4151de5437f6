// The part of LocalGroup that moves data: in place between mapped buffers, or through windows.
#include <drivetrain/toolkit/communicator/sum_type.h>
#include <drivetrain/toolkit/host_memory/copies.h>

#include <algorithm>

#include "group.h"
#include "kernels/collective/tree_sum.h"

namespace drivetrain::local {
namespace {

// Up to here every member adds whole windows into its own memory: less traffic than sharing the sum and copying it
// back.
constexpr int64_t kReadAllRanks = 3;

struct Share {
  int64_t begin, end;
};
// Member `index`'s part of `length` elements, cut at multiples of 16 so that members rarely write one cache line.
Share share_of(int64_t length, int64_t index, int64_t members) {
  const int64_t part = (length + 16 * members - 1) / (16 * members) * 16;
  return {std::min(length, index * part), std::min(length, (index + 1) * part)};
}

// Of sums that are still near when they are written on.
constexpr int64_t kNearBytes = 4 << 10;

kernels::SumType kernels_type(at::ScalarType dtype) {
  static_assert(static_cast<int>(toolkit::SumType::i64) == static_cast<int>(kernels::SumType::i64));
  return static_cast<kernels::SumType>(*toolkit::sum_type(dtype));
}

kernels::TreeSum sum_of(const Task& task, const std::vector<const void*>& sources, void* out) {
  return {sources.data(), out, static_cast<int64_t>(sources.size()), kernels_type(task.dtype())};
}

void skip(std::vector<const void*>& sources, int64_t bytes) {
  for (const void*& source : sources) source = static_cast<const char*>(source) + bytes;
}

// Past the caches into `out`, which may be one of the sources. Moves `sources` on.
void stream_sum(const Task& task, std::vector<const void*>& sources, char* out, int64_t count) {
  alignas(64) char near[kNearBytes];
  const kernels::TreeSum sum = sum_of(task, sources, near);
  for (int64_t left = count * task.element(); left > 0; left -= kNearBytes) {
    const int64_t bytes = std::min(left, kNearBytes);
    kernels::tree_sum_cpu(sum, 0, bytes / task.element());
    stream_bytes(out, near, bytes);
    out += bytes;
    skip(sources, bytes);
  }
  end_of_stream();
}

// Into this rank's own `out`: past the caches if it is large, unless it is one of the sources, whose lines are there.
void sum_for_itself(const Task& task, std::vector<const void*>& sources, char* out, int64_t count) {
  const int64_t bytes = count * task.element();
  if (sources.size() == 1) return copy_bytes(out, static_cast<const char*>(sources[0]), bytes);
  if (bytes >= kStreamBytes && std::find(sources.begin(), sources.end(), out) == sources.end())
    return stream_sum(task, sources, out, count);
  kernels::tree_sum_cpu(sum_of(task, sources, out), 0, count);
}

bool sliced(CallKind kind) {
  return kind == CallKind::reduce_scatter || kind == CallKind::all_to_all || kind == CallKind::all_to_all_counts;
}

}  // namespace

char* LocalGroup::window(int64_t p, int64_t number) const {
  return windows_at_[static_cast<size_t>(p)] + number % kWindows * kWindowBytes;
}

char* LocalGroup::address_of(const Place& place, int64_t bytes, int64_t p) const {
  return host_->address_of(place, bytes, ranks_[static_cast<size_t>(p)]);
}

// Only what is used is looked up: a member whose buffers nobody uses may have left.
void LocalGroup::move(Task& task) {
  if (task.route == Route::nothing) return;
  const CallKind kind = task.call.kind;
  if (kind == CallKind::all_to_all_counts) return pull_counts(task);
  const int64_t slice = task.call.count * task.element(), whole = slice * size();
  const int64_t in_bytes = sliced(kind) ? whole : slice, out_bytes = kind == CallKind::all_reduce ? slice : whole;
  const bool targets = task.route == Route::push || kind == CallKind::all_reduce;
  for (int64_t p = 0; p < size(); ++p) {
    const PostedCall& call = member(p).call(task.call.turn);
    const bool own = p == me_, source = task.route == Route::pull && (kind != CallKind::broadcast || p == call.peer);
    const auto index = static_cast<size_t>(p);
    sources_[index] = own ? task.source() : source ? address_of(call.in, in_bytes, p) : nullptr;
    const bool in_place = source && in_bytes == out_bytes && call.out == call.in;
    targets_[index] = own        ? task.target()
                      : !targets ? nullptr
                      : in_place ? static_cast<char*>(const_cast<void*>(sources_[index]))
                                 : address_of(call.out, out_bytes, p);
  }
  if (task.route == Route::pull) return pull(task);
  push(task);
}

// Own slice into everybody's result; into the one result if it is shared.
void LocalGroup::push(Task& task) {
  const int64_t bytes = task.call.count * task.element();
  if (task.route == Route::once) return copy_bytes(task.target() + me_ * bytes, task.source(), bytes);
  for (char* target : targets_) copy_bytes(target + me_ * bytes, task.source(), bytes);
}

void LocalGroup::pull(Task& task) {
  const int64_t bytes = task.call.count * task.element();
  switch (task.call.kind) {
    case CallKind::all_reduce:
      return reduce_everywhere(task);
    case CallKind::reduce_scatter:
      skip(sources_, me_ * bytes);
      return sum_for_itself(task, sources_, task.target(), task.call.count);
    case CallKind::broadcast:
      return copy_bytes(task.target(), source_of(task.call.peer), bytes);
    default:
      break;
  }
  const int64_t from = task.call.kind == CallKind::all_to_all ? me_ * bytes : 0;
  for (int64_t i = 0; i < size(); ++i) {
    const int64_t p = (me_ + i) % size();  // not all from the same rank at once
    copy_bytes(task.target() + p * bytes, source_of(p) + from, bytes);
  }
}

// Each member adds its share of the whole and writes it into everybody's buffer.
void LocalGroup::reduce_everywhere(Task& task) {
  if (size() == 1) return;
  const auto [first, last] = share_of(task.call.count, me_, size());
  const int64_t piece = kNearBytes / task.element();
  kernels::TreeSum sum = sum_of(task, sources_, task.target());
  if (size() == 2) {
    sum.also = targets_[static_cast<size_t>(1 - me_)];
    return kernels::tree_sum_cpu(sum, first, last);
  }
  for (int64_t at = first; at < last; at += piece) {
    const int64_t end = std::min(at + piece, last), begin = at * task.element();
    kernels::tree_sum_cpu(sum, at, end);
    for (char* target : targets_) copy_bytes(target + begin, task.target() + begin, (end - at) * task.element());
  }
}

// ---- windows ----

// Moves this call's windows as far as the peers allow; true when all went through.
bool LocalGroup::run_windows(Task& task) {
  if (task.piece == 0) {
    const int64_t slices = sliced(task.call.kind) ? size() : 1;
    task.piece = std::max<int64_t>(1, kWindowBytes / (slices * task.element()));
    task.piece = task.piece >= 64 ? task.piece / 64 * 64 : task.piece;
    task.windows = (task.longest + task.piece - 1) / task.piece;
  }
  while (stage(task) || add(task) || consume(task)) {
  }
  if (task.consumed < task.windows) return false;
  windows_ += task.windows;
  return true;
}

// Copies what peers need of one window's elements into it.
bool LocalGroup::stage(Task& task) {
  const int64_t next = windows_ + task.staged;
  if (task.staged == task.windows || !all(&Member::consumed, next + 1 - kWindows)) return false;
  const int64_t bytes = task.element(), begin = task.staged * task.piece;
  const int64_t length = std::min(task.piece, task.call.count - begin) * bytes;
  char* to = window(me_, next);
  if (task.call.kind == CallKind::all_to_all_counts) {
    stage_counts(task, begin, to);
  } else if (sliced(task.call.kind)) {
    for (int64_t j = 0; j < size(); ++j)
      if (j != me_)
        stream_bytes(to + j * task.piece * bytes, task.source() + (j * task.call.count + begin) * bytes, length);
  } else if (task.call.peer < 0 || task.call.peer == me_) {
    stream_bytes(to, task.source() + begin * bytes, length);
  }
  end_of_stream();
  ++task.staged;
  say(&Member::staged, next + 1);
  return true;
}

// Of an all_reduce over many members: adds its share of a window, in place in its own window.
bool LocalGroup::add(Task& task) {
  if (task.call.kind != CallKind::all_reduce || size() <= kReadAllRanks || task.summed == task.staged) return false;
  const int64_t next = windows_ + task.summed;
  if (!all(&Member::staged, next + 1)) return false;
  const int64_t length = std::min(task.piece, task.call.count - task.summed * task.piece);
  const auto [first, last] = share_of(length, me_, size());
  for (int64_t p = 0; p < size(); ++p) sources_[static_cast<size_t>(p)] = window(p, next) + first * task.element();
  char* sums = window(me_, next) + first * task.element();
  stream_sum(task, sources_, sums, last - first);
  ++task.summed;
  say(&Member::summed, next + 1);
  return true;
}

bool LocalGroup::consume(Task& task) {
  const bool shares = task.call.kind == CallKind::all_reduce && size() > kReadAllRanks;
  const int64_t next = windows_ + task.consumed;
  if (task.consumed == (shares ? task.summed : task.staged)) return false;
  if (!all(shares ? &Member::summed : &Member::staged, next + 1)) return false;
  const int64_t begin = task.consumed * task.piece;
  consume_window(task, begin, std::min(task.piece, task.call.count - begin));
  ++task.consumed;
  say(&Member::consumed, next + 1);
  return true;
}

// This rank's own data need not pass its window.
void LocalGroup::consume_window(Task& task, int64_t begin, int64_t length) {
  if (task.call.kind == CallKind::all_to_all_counts) return consume_counts(task, begin);
  const int64_t bytes = task.element(), count = task.call.count, number = windows_ + task.consumed;
  const int64_t own = (sliced(task.call.kind) ? me_ * count : 0) + begin;
  const int64_t slice = sliced(task.call.kind) ? me_ * task.piece * bytes : 0;
  for (int64_t p = 0; p < size(); ++p)
    sources_[static_cast<size_t>(p)] = p == me_ ? task.source() + own * bytes : window(p, number) + slice;
  switch (task.call.kind) {
    case CallKind::broadcast:
      if (task.call.peer != me_) copy_bytes(task.target() + begin * bytes, source_of(task.call.peer), length * bytes);
      return;
    case CallKind::reduce_scatter:
      return sum_for_itself(task, sources_, task.target() + begin * bytes, length);
    case CallKind::all_reduce:
      if (size() <= kReadAllRanks) return sum_for_itself(task, sources_, task.target() + begin * bytes, length);
      for (int64_t p = 0; p < size(); ++p) {
        const auto [from, to] = share_of(length, p, size());
        copy_bytes(task.target() + (begin + from) * bytes, window(p, number) + from * bytes, (to - from) * bytes);
      }
      return;
    default:
      for (int64_t p = 0; p < size(); ++p)
        copy_bytes(task.target() + (p * count + begin) * bytes, source_of(p), length * bytes);
  }
}

}  // namespace drivetrain::local
