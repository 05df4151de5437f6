#include "group.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>

#include "sums.h"

namespace drivetrain::local {
namespace {

// Up to here every member adds whole windows into its own memory: less traffic than sharing the sum and copying it
// back.
constexpr int64_t kReadAllRanks = 3;
// Elements added in one go before they are copied to the peers, while they are in the cache.
constexpr int64_t kBlock = 16 << 10;

int64_t element_size(const at::Tensor& t) { return static_cast<int64_t>(t.element_size()); }
const char* bytes_of(const at::Tensor& t) { return static_cast<const char*>(t.const_data_ptr()); }
char* bytes_of_out(const at::Tensor& t) { return static_cast<char*>(t.mutable_data_ptr()); }

void copy(char* out, const char* in, int64_t bytes) {
  if (bytes > 0 && out != in) memcpy(out, in, static_cast<size_t>(bytes));
}

struct Share {
  int64_t begin, end;
};
// Member `index`'s part of `length` elements, cut at multiples of 16 so that members rarely write one cache line.
Share share_of(int64_t length, int64_t index, int64_t members) {
  const int64_t part = (length + 16 * members - 1) / (16 * members) * 16;
  return {std::min(length, index * part), std::min(length, (index + 1) * part)};
}

class Done final : public Work {
 public:
  void wait() override {}
};
WorkPtr done() {
  static const WorkPtr work = std::make_shared<Done>();
  return work;
}

}  // namespace

at::Tensor LocalGroup::allocate(int64_t numel, at::ScalarType dtype) {
  const auto host = host_;
  const int64_t offset = host->memory().allocate(static_cast<size_t>(numel) * c10::elementSize(dtype));
  return at::from_blob(
      host->memory().base() + offset, {numel}, [host, offset](void*) { host->memory().release(offset); },
      at::TensorOptions().dtype(dtype));
}

// The first window is staged before the members meet: then a small message costs a single barrier.
void LocalGroup::exchange(Call call, const char* in, int64_t slices, const Consume& consume) {
  const int64_t bytes = static_cast<int64_t>(c10::elementSize(static_cast<at::ScalarType>(call.dtype)));
  const int64_t piece = std::max<int64_t>(1, kWindowBytes / (slices * bytes));
  begin(call);
  if (call.offset == kStaged) stage(in, slices, 0, piece);
  meet();
  compare();

  bool any_staged = false, any_shared = false;
  View view;
  for (int64_t p = 0; p < size(); ++p) {
    const int64_t offset = member(p).calls[call.number % 2].offset;
    any_staged |= offset == kStaged;
    any_shared |= offset >= 0;
    view.base.push_back(file(p) + std::max<int64_t>(offset, 0));
  }
  if (!any_staged) {
    view.stride = call.count * bytes, view.in_place = true;
    if (call.count > 0) consume(view, 0, call.count);
    meet();  // until now peers may read our buffer
    return finish();
  }
  view.stride = piece * bytes;
  for (int64_t begin = 0; begin < call.count; begin += piece) {
    if (begin > 0 || any_shared) {
      stage(in, slices, begin, piece);
      meet();
    }
    for (int64_t p = 0; p < size(); ++p) view.base[static_cast<size_t>(p)] = window(p);
    consume(view, begin, std::min(piece, call.count - begin));
    ++windows_;
  }
  finish();
}

void LocalGroup::stage(const char* in, int64_t slices, int64_t begin, int64_t piece) {
  if (in == nullptr) return;
  const int64_t bytes = static_cast<int64_t>(c10::elementSize(static_cast<at::ScalarType>(current_.dtype)));
  const int64_t length = std::min(piece, current_.count - begin);
  for (int64_t j = 0; j < slices; ++j)
    copy(window(me_) + j * piece * bytes, in + (j * current_.count + begin) * bytes, length * bytes);
}

WorkPtr LocalGroup::all_reduce(at::Tensor t) {
  check("all_reduce", t, true);
  exchange(call(CallKind::all_reduce, t, t.numel()), bytes_of(t), 1,
           [&](const View& view, int64_t begin, int64_t length) {
             if (view.in_place)
               reduce_in_place(t, view, length);
             else
               reduce_window(t, view, begin, length);
           });
  return done();
}

void LocalGroup::reduce_window(at::Tensor& t, const View& view, int64_t begin, int64_t length) {
  const int64_t bytes = element_size(t);
  char* out = bytes_of_out(t) + begin * bytes;
  if (size() <= kReadAllRanks) return tree_sum(t.scalar_type(), out, view.base.data(), size(), length);
  // Each member adds its share of the window, in place in its own window, and all collect the shares.
  const auto [first, last] = share_of(length, me_, size());
  std::vector<const char*> sources;
  for (const char* base : view.base) sources.push_back(base + first * bytes);
  tree_sum(t.scalar_type(), window(me_) + first * bytes, sources.data(), size(), last - first);
  meet();
  for (int64_t p = 0; p < size(); ++p) {
    const auto [from, to] = share_of(length, p, size());
    copy(out + from * bytes, view.base[static_cast<size_t>(p)] + from * bytes, (to - from) * bytes);
  }
}

// Each member adds its share of the whole and writes it into everybody's buffer.
void LocalGroup::reduce_in_place(at::Tensor& t, const View& view, int64_t length) {
  const int64_t bytes = element_size(t);
  const auto [first, last] = share_of(length, me_, size());
  std::vector<const char*> sources(view.base.size());
  for (int64_t at = first; at < last; at += kBlock) {
    const int64_t n = std::min(kBlock, last - at);
    for (size_t p = 0; p < sources.size(); ++p) sources[p] = view.base[p] + at * bytes;
    char* own = view.base[static_cast<size_t>(me_)] + at * bytes;
    tree_sum(t.scalar_type(), own, sources.data(), size(), n);
    for (char* base : view.base) copy(base + at * bytes, own, n * bytes);
  }
}

WorkPtr LocalGroup::all_gather(at::Tensor out, at::Tensor in) {
  check_sizes("all_gather", out, in, false);
  const int64_t bytes = element_size(in), count = in.numel();
  exchange(call(CallKind::all_gather, in, count), bytes_of(in), 1,
           [&](const View& view, int64_t begin, int64_t length) {
             for (int64_t p = 0; p < size(); ++p)
               copy(bytes_of_out(out) + (p * count + begin) * bytes, view.base[static_cast<size_t>(p)], length * bytes);
           });
  return done();
}

WorkPtr LocalGroup::reduce_scatter(at::Tensor out, at::Tensor in) {
  check_sizes("reduce_scatter", in, out, false);
  check("reduce_scatter", in, true);
  const int64_t bytes = element_size(in), count = out.numel();
  std::vector<const char*> sources(static_cast<size_t>(size()));
  exchange(call(CallKind::reduce_scatter, in, count), bytes_of(in), size(),
           [&](const View& view, int64_t begin, int64_t length) {
             for (size_t p = 0; p < sources.size(); ++p) sources[p] = view.base[p] + me_ * view.stride;
             tree_sum(in.scalar_type(), bytes_of_out(out) + begin * bytes, sources.data(), size(), length);
           });
  return done();
}

WorkPtr LocalGroup::all_to_all(at::Tensor out, at::Tensor in) {
  check_sizes("all_to_all", out, in, true);
  const int64_t bytes = element_size(in), count = in.numel() / size();
  exchange(call(CallKind::all_to_all, in, count), bytes_of(in), size(),
           [&](const View& view, int64_t begin, int64_t length) {
             for (int64_t p = 0; p < size(); ++p)
               copy(bytes_of_out(out) + (p * count + begin) * bytes,
                    view.base[static_cast<size_t>(p)] + me_ * view.stride, length * bytes);
           });
  return done();
}

WorkPtr LocalGroup::broadcast(at::Tensor t, int64_t root) {
  check("broadcast", t);
  if (root < 0 || root >= size())
    throw fail(ErrorCode::config, "communicator/local: broadcast in group \"", label_, "\" from ", root,
               "; wanted an index from 0 to ", size() - 1);
  Call posted = call(CallKind::broadcast, t, t.numel(), root);
  if (me_ != root) posted.offset = kUnread;
  const int64_t bytes = element_size(t);
  exchange(posted, me_ == root ? bytes_of(t) : nullptr, 1, [&](const View& view, int64_t begin, int64_t length) {
    if (me_ != root) copy(bytes_of_out(t) + begin * bytes, view.base[static_cast<size_t>(root)], length * bytes);
  });
  return done();
}

void LocalGroup::barrier() {
  Call posted;
  posted.kind = CallKind::barrier;
  begin(posted);
  meet();
  compare();
  finish();
}

}  // namespace drivetrain::local
