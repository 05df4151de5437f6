#include "tree_collectives.h"

#include <algorithm>

#include "comm.h"

namespace drivetrain::nccl {
namespace {

constexpr int64_t kGatherBytes = 64 << 10;   // of one rank's data: below, the second step costs more than the traffic
constexpr int64_t kScratchBytes = 32 << 20;  // large enough for full speed of the links

}  // namespace

int64_t TreeCall::piece(int64_t count) const {
  const int64_t most = std::max<int64_t>(16, kScratchBytes / (element_bytes * std::max(1, ranks - 1)) / 16 * 16);
  return std::min(most, (count + 15) / 16 * 16);  // slices in scratch begin at 16 bytes or more
}

bool TreeCall::gathers(int64_t count) const { return count * element_bytes <= kGatherBytes || count < ranks; }

int64_t TreeCall::all_reduce_scratch(int64_t count) const {
  if (gathers(count)) return gather_scratch(count);
  return std::max(reduce_scratch(count / ranks), gather_scratch(count % ranks));
}

ncclResult_t TreeCall::reduce_scatter(const char* in, char* out, int64_t count, char* scratch, ncclComm_t comm,
                                      cudaStream_t stream) const {
  const int64_t step = piece(count);
  for (int64_t begin = 0; begin < count; begin += step) {
    const int64_t length = std::min(step, count - begin);
    const auto bytes = static_cast<size_t>(length * element_bytes);
    const auto slice = [&](int rank) { return in + (rank * count + begin) * element_bytes; };
    ncclResult_t result = ncclGroupStart();
    for (int p = 0; p < ranks && result == ncclSuccess; ++p) {
      if (p == me) continue;
      char* slot = scratch + (p - (p > me ? 1 : 0)) * step * element_bytes;
      result = ncclSend(slice(p), bytes, ncclUint8, p, comm, stream);
      if (result == ncclSuccess) result = ncclRecv(slot, bytes, ncclUint8, p, comm, stream);
    }
    const ncclResult_t ended = ncclGroupEnd();
    if (result != ncclSuccess) return result;
    if (ended != ncclSuccess) return ended;
    const TreeSum sum{type, slice(me), scratch, step, ranks, me, out + begin * element_bytes, length};
    check_cuda(static_cast<cudaError_t>(tree_sum(sum, stream)), "the sum over ranks", "the kernel");
  }
  return ncclSuccess;
}

ncclResult_t TreeCall::gather_and_add(char* data, int64_t count, char* scratch, ncclComm_t comm,
                                      cudaStream_t stream) const {
  const auto bytes = static_cast<size_t>(count * element_bytes);
  if (const ncclResult_t r = ncclAllGather(data, scratch, bytes, ncclUint8, comm, stream); r != ncclSuccess) return r;
  const TreeSum sum{type, data, scratch, count, ranks, ranks, data, count};  // no rank's slice lies apart
  check_cuda(static_cast<cudaError_t>(tree_sum(sum, stream)), "the sum over ranks", "the kernel");
  return ncclSuccess;
}

ncclResult_t TreeCall::all_reduce(char* data, int64_t count, char* scratch, ncclComm_t comm,
                                  cudaStream_t stream) const {
  if (gathers(count)) return gather_and_add(data, count, scratch, comm, stream);
  const int64_t slice = count / ranks, rest = count % ranks;
  char* const own = data + me * slice * element_bytes;
  if (const ncclResult_t r = reduce_scatter(data, own, slice, scratch, comm, stream); r != ncclSuccess) return r;
  const auto bytes = static_cast<size_t>(slice * element_bytes);
  if (const ncclResult_t r = ncclAllGather(own, data, bytes, ncclUint8, comm, stream); r != ncclSuccess) return r;
  if (rest == 0) return ncclSuccess;
  return gather_and_add(data + ranks * slice * element_bytes, rest, scratch, comm, stream);
}

}  // namespace drivetrain::nccl
