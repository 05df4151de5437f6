#include "group.h"

#include <ATen/ops/empty.h>
#include <drivetrain/toolkit/communicator/sum_type.h>

#include <thread>

#include <drivetrain/error.h>

#include "tree_collectives.h"

namespace drivetrain::nccl {
namespace {

const char* bytes_of(const at::Tensor& t) { return static_cast<const char*>(t.const_data_ptr()); }
char* bytes_of_out(const at::Tensor& t) { return static_cast<char*>(t.mutable_data_ptr()); }
size_t byte_count(const at::Tensor& t) { return static_cast<size_t>(t.nbytes()); }

struct NcclType {
  at::ScalarType dtype;
  ncclDataType_t type;
};
constexpr NcclType kSums[] = {{at::kFloat, ncclFloat32}, {at::kDouble, ncclFloat64}, {at::kBFloat16, ncclBfloat16},
                              {at::kHalf, ncclFloat16},  {at::kChar, ncclInt8},      {at::kByte, ncclUint8},
                              {at::kInt, ncclInt32},     {at::kUInt32, ncclUint32},  {at::kLong, ncclInt64},
                              {at::kUInt64, ncclUint64}};
const NcclType* nccl_type(at::ScalarType dtype) {
  for (const NcclType& t : kSums)
    if (t.dtype == dtype) return &t;
  return nullptr;
}

// 0 is `none` there.
SumType kernel_type(at::ScalarType dtype) {
  static_assert(static_cast<int>(toolkit::SumType::i64) + 1 == static_cast<int>(SumType::i64));
  return static_cast<SumType>(static_cast<int>(*toolkit::sum_type(dtype)) + 1);
}

}  // namespace

// What a caller waits for. Keeps the tensors until then: memory that is given back afterwards is used again in the
// order of the stream that waited.
struct NcclGroup::MarkWork final : Work {
  CommPtr comm;
  MarkPtr mark;  // of a send or recv: null until its batch ran
  std::vector<at::Tensor> tensors;
  Call call;
  bool empty = false, waited = false;

  // Without a wait the caller's stream does not know of the call, and would use the memory again while NCCL does.
  ~MarkWork() override {
    if (mark && !waited && !comm->board().aborted()) comm->hold(mark, std::move(tensors));
  }

  void wait() override {
    if (empty) return;
    if (!mark)
      throw fail(ErrorCode::internal, "communicator/nccl: wait for a ", call.text(),
                 " that did not run; call batch_end first");
    comm->join(*mark);
    waited = true;
    tensors.clear();
  }
};

NcclGroup::NcclGroup(CommPtr comm, bool deterministic) : comm_(std::move(comm)), deterministic_(deterministic) {
  token_ = allocate(1, at::kInt);
}

NcclGroup::~NcclGroup() = default;

at::Tensor NcclGroup::allocate(int64_t numel, at::ScalarType dtype) {
  return at::empty({numel}, at::TensorOptions().dtype(dtype).device(comm_->device()));
}

Call NcclGroup::next(CallKind kind, const at::Tensor& t, int64_t count, int64_t peer) {
  if (batching_) throw fail(ErrorCode::internal, "communicator/nccl: only send and recv may stand in a batch");
  return {kind, t.scalar_type(), count, peer, ++calls_};
}

bool NcclGroup::by_tree(at::ScalarType dtype) const { return deterministic_ || nccl_type(dtype) == nullptr; }

WorkPtr NcclGroup::run(const Call& call, std::vector<at::Tensor> tensors, const Comm::Body& body, Counts counts) {
  auto work = std::make_shared<MarkWork>();
  work->call = call;
  // With counts a rank that moves nothing still makes the call, so that all count the same calls.
  work->empty = call.count == 0 && call.kind != CallKind::all_to_all_counts;
  if (work->empty) return work;
  work->comm = comm_;
  work->tensors = std::move(tensors);
  work->mark = comm_->enqueue(call, body, std::move(counts));
  return work;
}

WorkPtr NcclGroup::all_reduce(at::Tensor t) {
  check().summed("all_reduce", t);
  const Call call = next(CallKind::all_reduce, t, t.numel());
  const auto count = static_cast<size_t>(t.numel());
  if (!by_tree(t.scalar_type()))
    return run(call, {t}, [&](ncclComm_t comm, cudaStream_t stream) {
      const auto type = nccl_type(t.scalar_type())->type;
      return ncclAllReduce(bytes_of(t), bytes_of_out(t), count, type, ncclSum, comm, stream);
    });
  const TreeCall tree{kernel_type(t.scalar_type()), static_cast<int64_t>(t.element_size()), static_cast<int>(size()),
                      static_cast<int>(rank())};
  const at::Tensor scratch = allocate(tree.all_reduce_scratch(t.numel()), t.scalar_type());
  return run(call, {t, scratch}, [&](ncclComm_t comm, cudaStream_t stream) {
    return tree.all_reduce(bytes_of_out(t), t.numel(), bytes_of_out(scratch), comm, stream);
  });
}

WorkPtr NcclGroup::reduce_scatter(at::Tensor out, at::Tensor in) {
  check().slices("reduce_scatter", in, out);
  check().summed("reduce_scatter", in);
  const Call call = next(CallKind::reduce_scatter, in, out.numel());
  if (!by_tree(in.scalar_type()))
    return run(call, {out, in}, [&](ncclComm_t comm, cudaStream_t stream) {
      const auto type = nccl_type(in.scalar_type())->type;
      return ncclReduceScatter(bytes_of(in), bytes_of_out(out), static_cast<size_t>(out.numel()), type, ncclSum, comm,
                               stream);
    });
  const TreeCall tree{kernel_type(in.scalar_type()), static_cast<int64_t>(in.element_size()), static_cast<int>(size()),
                      static_cast<int>(rank())};
  const at::Tensor scratch = allocate(tree.reduce_scratch(out.numel()), in.scalar_type());
  return run(call, {out, in, scratch}, [&](ncclComm_t comm, cudaStream_t stream) {
    return tree.reduce_scatter(bytes_of(in), bytes_of_out(out), out.numel(), bytes_of_out(scratch), comm, stream);
  });
}

WorkPtr NcclGroup::all_gather(at::Tensor out, at::Tensor in) {
  check().slices("all_gather", out, in);
  return run(next(CallKind::all_gather, in, in.numel()), {out, in}, [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllGather(bytes_of(in), bytes_of_out(out), byte_count(in), ncclUint8, comm, stream);
  });
}

WorkPtr NcclGroup::all_to_all(at::Tensor out, at::Tensor in) {
  check().exchange("all_to_all", out, in);
  const size_t slice = byte_count(in) / static_cast<size_t>(size());
  const auto move = [&](ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result = ncclGroupStart();
    for (size_t p = 0; p < static_cast<size_t>(size()) && result == ncclSuccess; ++p) {
      result = ncclSend(bytes_of(in) + p * slice, slice, ncclUint8, static_cast<int>(p), comm, stream);
      if (result == ncclSuccess)
        result = ncclRecv(bytes_of_out(out) + p * slice, slice, ncclUint8, static_cast<int>(p), comm, stream);
    }
    const ncclResult_t ended = ncclGroupEnd();
    return result != ncclSuccess ? result : ended;
  };
  return run(next(CallKind::all_to_all, in, in.numel() / size()), {out, in}, move);
}

WorkPtr NcclGroup::all_to_all(at::Tensor out, at::Tensor in, const std::vector<int64_t>& received,
                              const std::vector<int64_t>& sent) {
  Counts counts{sent, received};
  check().exchange("all_to_all", out, in, counts);
  const auto element = static_cast<int64_t>(in.element_size());
  const auto move = [&](ncclComm_t comm, cudaStream_t stream) {
    const char* from = bytes_of(in);
    char* to = bytes_of_out(out);
    ncclResult_t result = ncclGroupStart();
    for (size_t p = 0; p < sent.size() && result == ncclSuccess; ++p) {
      const int64_t out_bytes = sent[p] * element, in_bytes = received[p] * element;
      if (out_bytes > 0)
        result = ncclSend(from, static_cast<size_t>(out_bytes), ncclUint8, static_cast<int>(p), comm, stream);
      if (in_bytes > 0 && result == ncclSuccess)
        result = ncclRecv(to, static_cast<size_t>(in_bytes), ncclUint8, static_cast<int>(p), comm, stream);
      from += out_bytes, to += in_bytes;
    }
    const ncclResult_t ended = ncclGroupEnd();
    return result != ncclSuccess ? result : ended;
  };
  return run(next(CallKind::all_to_all_counts, in, 0), {out, in}, move, std::move(counts));
}

WorkPtr NcclGroup::broadcast(at::Tensor t, int64_t root) {
  check().tensor("broadcast", t);
  check().index("broadcast", "from", root);
  return run(next(CallKind::broadcast, t, t.numel(), root), {t}, [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclBroadcast(bytes_of(t), bytes_of_out(t), byte_count(t), ncclUint8, static_cast<int>(root), comm, stream);
  });
}

void NcclGroup::barrier() {
  if (comm_->capturing())
    throw fail(ErrorCode::internal, "communicator/nccl: barrier of group \"", label(), "\" while a graph is captured");
  const Call call = next(CallKind::barrier, token_, 1);
  const MarkPtr mark = comm_->enqueue(call, [&](ncclComm_t comm, cudaStream_t stream) {
    return ncclAllReduce(bytes_of(token_), bytes_of_out(token_), 1, ncclInt32, ncclSum, comm, stream);
  });
  // Asked again and again rather than waited for: an abort has to get through.
  for (int asked = 0; !comm_->board().aborted(); ++asked) {
    const cudaError_t status = query(mark->event);
    if (status == cudaSuccess) break;
    if (status != cudaErrorNotReady) {
      comm_->raise_own(status, call);
      break;
    }
    if (asked < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  comm_->board().throw_if_ended(call.where(label()));
}

void NcclGroup::batch_begin() {
  if (batching_) throw fail(ErrorCode::internal, "communicator/nccl: a batch inside a batch");
  batching_ = true;
}

void NcclGroup::batch_end() {
  if (!batching_) throw fail(ErrorCode::internal, "communicator/nccl: batch_end without batch_begin");
  batching_ = false;
  run_transfers();
}

WorkPtr NcclGroup::send(at::Tensor t, int64_t to) { return transfer(true, std::move(t), to); }
WorkPtr NcclGroup::recv(at::Tensor t, int64_t from) { return transfer(false, std::move(t), from); }

WorkPtr NcclGroup::transfer(bool sending, at::Tensor t, int64_t peer) {
  const char* name = sending ? "send" : "recv";
  check().tensor(name, t);
  check().index(name, "with index", peer);
  auto work = std::make_shared<MarkWork>();
  work->comm = comm_;
  work->call = {sending ? CallKind::send : CallKind::recv, t.scalar_type(), t.numel(), peer, 0};
  work->empty = t.numel() == 0;  // both ends know
  work->tensors = {t};
  if (!work->empty) transfers_.push_back({sending, std::move(t), peer, work});
  if (!batching_) run_transfers();
  return work;
}

// One NCCL group: its sends and receives progress together; several with the same rank match in call order.
void NcclGroup::run_transfers() {
  if (transfers_.empty()) return;
  const std::vector<Transfer> batch = std::exchange(transfers_, {});
  Call call = batch.front().work->call;
  if (batch.size() > 1) call = {CallKind::batch, call.dtype, static_cast<int64_t>(batch.size()), -1, 0};
  const MarkPtr mark = comm_->enqueue(call, [&](ncclComm_t comm, cudaStream_t stream) {
    ncclResult_t result = ncclGroupStart();
    for (const Transfer& t : batch) {
      if (result != ncclSuccess) break;
      const int peer = static_cast<int>(t.peer);
      result = t.sending ? ncclSend(bytes_of(t.tensor), byte_count(t.tensor), ncclUint8, peer, comm, stream)
                         : ncclRecv(bytes_of_out(t.tensor), byte_count(t.tensor), ncclUint8, peer, comm, stream);
    }
    const ncclResult_t ended = ncclGroupEnd();
    return result != ncclSuccess ? result : ended;
  });
  for (const Transfer& t : batch) t.work->mark = mark;
}

}  // namespace drivetrain::nccl
