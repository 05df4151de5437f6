#include "group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <numeric>

#include <drivetrain/error.h>

namespace drivetrain::toolkit::messages {

const char* bytes_of(const at::Tensor& t) { return static_cast<const char*>(t.const_data_ptr()); }
char* bytes_of_out(const at::Tensor& t) { return static_cast<char*>(t.mutable_data_ptr()); }

Packets::PayloadFor same_for_all(const at::Tensor& t, int64_t count) {
  return [data = bytes_of(t), count](int) { return Packets::Payload{data, count}; };
}
Packets::PayloadFor slice_for_each(const at::Tensor& t, int64_t count) {
  const auto slice = count * static_cast<int64_t>(t.element_size());
  return [data = bytes_of(t), count, slice](int to) { return Packets::Payload{data + to * slice, count}; };
}

Error misused(const std::string& plugin, const char* what) { return fail(ErrorCode::internal, plugin, ": ", what); }

struct MessageGroup::LaneWork final : Work {
  std::shared_ptr<Lane> lane;
  OperationPtr operation;

  LaneWork(std::shared_ptr<Lane> l, OperationPtr o) : lane(std::move(l)), operation(std::move(o)) {}
  void wait() override {
    if (!operation->flow.exists())
      throw messages::misused(lane->plugin(), "wait for a send or recv that did not begin; call batch_end first");
    lane->engine().wait(*lane, *operation);
  }
};

at::Tensor MessageGroup::allocate(int64_t numel, at::ScalarType dtype) {
  const auto memory = lane_->engine().carrier().allocate(numel * static_cast<int64_t>(c10::elementSize(dtype)));
  if (!memory) return at::empty({numel}, at::TensorOptions(dtype));
  return at::from_blob(
      memory.get(), {numel}, [memory](void*) {}, at::TensorOptions(dtype));
}

OperationPtr MessageGroup::begin(CallKind kind, at::ScalarType dtype, int64_t count, int64_t peer) {
  if (batching_) throw misused("only send and recv may stand in a batch");
  auto operation = std::make_shared<Operation>();
  operation->call = {kind, dtype, count, peer, ++calls_};
  return operation;
}

WorkPtr MessageGroup::enter(OperationPtr operation, Flow flow) {
  operation->flow = std::move(flow);
  auto work = std::make_shared<LaneWork>(lane_, operation);
  lane_->engine().enter(*lane_, std::move(operation));
  return work;
}

WorkPtr MessageGroup::all_reduce(at::Tensor t) {
  check().summed("all_reduce", t);
  const OperationPtr op = begin(CallKind::all_reduce, t.scalar_type(), t.numel());
  op->tensors = {t};
  op->use = {{}, {Range(t)}};
  op->payload_for = same_for_all(t, op->call.count);
  return enter(op, messages::all_reduce(*op, lane_->wire(), bytes_of_out(t)));
}

WorkPtr MessageGroup::reduce_scatter(at::Tensor out, at::Tensor in) {
  check().slices("reduce_scatter", in, out);
  check().summed("reduce_scatter", in);
  const OperationPtr op = begin(CallKind::reduce_scatter, in.scalar_type(), out.numel());
  op->tensors = {out, in};
  op->use = {{Range(in)}, {Range(out)}};
  op->payload_for = slice_for_each(in, op->call.count);
  return enter(op, messages::reduce_scatter(*op, lane_->wire(), bytes_of_out(out), bytes_of(in)));
}

WorkPtr MessageGroup::all_gather(at::Tensor out, at::Tensor in) {
  check().slices("all_gather", out, in);
  const OperationPtr op = begin(CallKind::all_gather, in.scalar_type(), in.numel());
  op->tensors = {out, in};
  op->use = {{Range(in)}, {Range(out)}};
  op->payload_for = same_for_all(in, op->call.count);
  return enter(op, messages::all_gather(*op, lane_->wire(), bytes_of_out(out), bytes_of(in)));
}

WorkPtr MessageGroup::all_to_all(at::Tensor out, at::Tensor in) {
  check().exchange("all_to_all", out, in);
  const OperationPtr op = begin(CallKind::all_to_all, in.scalar_type(), in.numel() / size());
  op->tensors = {out, in};
  op->use = {{Range(in)}, {Range(out)}};
  op->payload_for = slice_for_each(in, op->call.count);
  return enter(op, messages::all_to_all(*op, lane_->wire(), bytes_of_out(out), bytes_of(in)));
}

WorkPtr MessageGroup::all_to_all(at::Tensor out, at::Tensor in, const std::vector<int64_t>& received,
                                 const std::vector<int64_t>& sent) {
  const Counts counts{sent, received};
  check().exchange("all_to_all", out, in, counts);
  const OperationPtr op = begin(CallKind::all_to_all_counts, in.scalar_type(), 0);
  op->tensors = {out, in};
  op->use = {{Range(in)}, {Range(out)}};
  op->counts = counts;
  op->payload_for = [data = bytes_of(in), sent, element = op->call.element_bytes()](int to) {
    const auto slice = sent.begin() + to;
    return Packets::Payload{data + std::accumulate(sent.begin(), slice, int64_t{0}) * element, *slice};
  };
  return enter(op, all_to_all_counts(*op, lane_->wire(), bytes_of_out(out), bytes_of(in)));
}

WorkPtr MessageGroup::broadcast(at::Tensor t, int64_t root) {
  check().tensor("broadcast", t);
  check().index("broadcast", "from", root);
  const OperationPtr op = begin(CallKind::broadcast, t.scalar_type(), t.numel(), root);
  op->tensors = {t};
  (root == rank() ? op->use.read : op->use.written).emplace_back(t);
  if (root == rank()) op->payload_for = same_for_all(t, op->call.count);
  return enter(op, messages::broadcast(*op, lane_->wire(), bytes_of_out(t)));
}

void MessageGroup::barrier() { enter(begin(CallKind::barrier, at::kByte, 0), messages::barrier())->wait(); }

WorkPtr MessageGroup::send(at::Tensor t, int64_t to) { return transfer(CallKind::send, std::move(t), to); }
WorkPtr MessageGroup::recv(at::Tensor t, int64_t from) { return transfer(CallKind::recv, std::move(t), from); }

// One operation per batch: its messages are posted together.
WorkPtr MessageGroup::transfer(CallKind kind, at::Tensor t, int64_t peer) {
  const char* const name = kind == CallKind::send ? "send" : "recv";
  check().tensor(name, t);
  check().index(name, "with index", peer);
  const Call call{kind, t.scalar_type(), t.numel(), peer, 0};
  if (!batch_) {
    batch_ = std::make_shared<Operation>();
    batch_->call = call;
  }
  (kind == CallKind::send ? batch_->use.read : batch_->use.written).emplace_back(t);
  batch_->messages.push_back({call, std::move(t)});
  auto work = std::make_shared<LaneWork>(lane_, batch_);
  if (!batching_) {
    batching_ = true;
    batch_end();
  }
  return work;
}

void MessageGroup::batch_begin() {
  if (batching_) throw misused("a batch inside a batch");
  batching_ = true;
}

void MessageGroup::batch_end() {
  if (!batching_) throw misused("batch_end without batch_begin");
  batching_ = false;
  const OperationPtr batch = std::exchange(batch_, nullptr);
  if (batch) enter(batch, messages(*batch, lane_->wire(), lane_->ranks(), lane_->label()));
}

}  // namespace drivetrain::toolkit::messages
