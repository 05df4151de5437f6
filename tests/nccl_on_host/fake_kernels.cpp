// What the kernels do, on the host: the sum of tree_sum.cu, written from the tree's definition rather than like the
// kernel, and the notes of device_note.cu.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <atomic>
#include <bit>

#include "device_note.h"
#include "fake_cuda.h"
#include "tree_sum.h"

namespace drivetrain::nccl {
namespace {

template <class T, class A>
A node(const TreeSum& s, int first, int ranks, int64_t i) {
  if (ranks == 1) {
    const T* slice = first == s.me ? static_cast<const T*>(s.own)
                                   : static_cast<const T*>(s.others) + (first - (first > s.me ? 1 : 0)) * s.stride;
    return static_cast<A>(slice[i]);
  }
  const int left = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks - 1)));
  return static_cast<A>(node<T, A>(s, first, left, i) + node<T, A>(s, first + left, ranks - left, i));
}

template <class T, class A>
void sum_of(const TreeSum& s) {
  for (int64_t i = 0; i < s.count; ++i) static_cast<T*>(s.out)[i] = static_cast<T>(node<T, A>(s, 0, s.ranks, i));
}

void run(const TreeSum& s) {
  switch (s.type) {
    case SumType::f32:
      return sum_of<float, float>(s);
    case SumType::f64:
      return sum_of<double, double>(s);
    case SumType::bf16:
      return sum_of<c10::BFloat16, float>(s);
    case SumType::f16:
      return sum_of<c10::Half, float>(s);
    case SumType::i8:
      return sum_of<uint8_t, uint8_t>(s);
    case SumType::i16:
      return sum_of<uint16_t, uint16_t>(s);
    case SumType::i32:
      return sum_of<uint32_t, uint32_t>(s);
    case SumType::i64:
      return sum_of<uint64_t, uint64_t>(s);
    case SumType::none:
      return;
  }
}

}  // namespace

int tree_sum(const TreeSum& sum, void* stream) {
  enqueue_on_host(static_cast<cudaStream_t>(stream), [sum] { run(sum); });
  return 0;
}

int note_begin(DeviceNote* note, uint64_t call, bool is_collective, void* stream) {
  enqueue_on_host(static_cast<cudaStream_t>(stream), [=] {
    std::atomic_ref(note->call) = call;
    if (is_collective) ++std::atomic_ref(note->collectives);
    ++std::atomic_ref(note->begun);
  });
  return 0;
}

int note_end(DeviceNote* note, void* stream) {
  enqueue_on_host(static_cast<cudaStream_t>(stream),
                  [=] { std::atomic_ref(note->ended) = std::atomic_ref(note->begun).load(); });
  return 0;
}

}  // namespace drivetrain::nccl
