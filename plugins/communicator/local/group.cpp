#include "group.h"

#include <algorithm>

namespace drivetrain::local {

// The caller's end of a call. Keeps the group, which keeps the call only until it is over.
class LocalGroup::TaskWork final : public Work {
 public:
  TaskWork(std::shared_ptr<LocalGroup> group, TaskPtr task) : group_(std::move(group)), task_(std::move(task)) {}
  void wait() override {
    if (task_ == nullptr) return;
    group_->wait(task_);
    task_ = nullptr;
  }

 private:
  std::shared_ptr<LocalGroup> group_;
  TaskPtr task_;
};

class LocalGroup::TransferWork final : public Work {
 public:
  TransferWork(std::shared_ptr<LocalGroup> group, std::shared_ptr<Transfer> transfer)
      : group_(std::move(group)), transfer_(std::move(transfer)) {}
  void wait() override { group_->wait(transfer_); }

 private:
  std::shared_ptr<LocalGroup> group_;
  std::shared_ptr<Transfer> transfer_;
};

void LocalGroup::check(const char* name, const at::Tensor& t, bool sums) const {
  const auto refuse = [&](const auto&... problem) {
    throw fail(ErrorCode::config, "communicator/local: ", name, " in group \"", label_, "\": ", problem...);
  };
  if (!t.defined()) refuse("the tensor is undefined");
  if (!t.device().is_cpu()) refuse("wanted a tensor in CPU memory, found ", t.device().str());
  if (!t.is_contiguous()) refuse("wanted a contiguous tensor, found strides ", t.strides());
  if (sums && !sum_type(t.scalar_type())) refuse("no sum over ", c10::toString(t.scalar_type()));
}

// `equal`: both are whole, as of all_to_all; otherwise `slice` is one of `whole`'s.
void LocalGroup::check_sizes(const char* name, const at::Tensor& whole, const at::Tensor& slice, bool equal) const {
  check(name, whole);
  check(name, slice);
  const auto refuse = [&](const auto&... problem) {
    throw fail(ErrorCode::config, "communicator/local: ", name, " in group \"", label_, "\": ", problem...);
  };
  if (whole.scalar_type() != slice.scalar_type())
    refuse("dtypes differ, ", c10::toString(whole.scalar_type()), " and ", c10::toString(slice.scalar_type()));
  const bool fits =
      equal ? whole.numel() == slice.numel() && whole.numel() % size() == 0 : whole.numel() == slice.numel() * size();
  if (!fits)
    refuse(whole.numel(), " elements do not fit ", slice.numel(), " elements ", equal ? "cut into" : "from each of",
           " ", size(), " ranks");
  const Range whole_range(whole), slice_range(slice);
  if (!whole_range.meets(slice_range)) return;
  if (equal) refuse("in and out overlap; give them memory of their own");
  if (slice_range.begin != whole_range.begin + static_cast<size_t>(me_) * slice.nbytes())
    refuse("in and out overlap; wanted memory of their own, or as the smaller one exactly slice ", me_,
           " of the other, this rank's own");
}

WorkPtr LocalGroup::all_reduce(at::Tensor t) {
  check("all_reduce", t, true);
  const int64_t count = t.numel();
  at::Tensor in = t;
  return post(CallKind::all_reduce, std::move(in), std::move(t), count);
}

WorkPtr LocalGroup::all_gather(at::Tensor out, at::Tensor in) {
  check_sizes("all_gather", out, in, false);
  const int64_t count = in.numel();
  return post(CallKind::all_gather, std::move(in), std::move(out), count);
}

WorkPtr LocalGroup::reduce_scatter(at::Tensor out, at::Tensor in) {
  check_sizes("reduce_scatter", in, out, false);
  check("reduce_scatter", in, true);
  const int64_t count = out.numel();
  return post(CallKind::reduce_scatter, std::move(in), std::move(out), count);
}

WorkPtr LocalGroup::all_to_all(at::Tensor out, at::Tensor in) {
  check_sizes("all_to_all", out, in, true);
  const int64_t count = in.numel() / size();
  return post(CallKind::all_to_all, std::move(in), std::move(out), count);
}

WorkPtr LocalGroup::broadcast(at::Tensor t, int64_t root) {
  check("broadcast", t);
  if (root < 0 || root >= size())
    throw fail(ErrorCode::config, "communicator/local: broadcast in group \"", label_, "\" from ", root,
               "; wanted an index from 0 to ", size() - 1);
  const int64_t count = t.numel();
  at::Tensor in = t;
  return post(CallKind::broadcast, std::move(in), std::move(t), count, root);
}

void LocalGroup::barrier() {
  const auto task = std::make_shared<Task>();
  task->call.kind = CallKind::barrier;
  if (!post_task(task)) wait(task);
}

WorkPtr LocalGroup::post(CallKind kind, at::Tensor in, at::Tensor out, int64_t count, int64_t root) {
  const auto task = std::make_shared<Task>();
  task->call.kind = kind;
  task->call.dtype = static_cast<int32_t>(in.scalar_type());
  task->call.count = count;
  task->call.root = root;
  task->use = {Range(in), Range(out)};
  task->call.in = host_->place_of(task->use.read.begin);
  const bool in_place = task->use.written.begin == task->use.read.begin;
  task->call.out = in_place ? task->call.in : host_->place_of(task->use.written.begin);
  task->in = std::move(in);
  task->out = std::move(out);
  if (post_task(task)) return completed_work();
  return std::make_shared<TaskWork>(shared_from_this(), task);
}

// Ring slots that peers still read make a call wait in the queue, not the caller. True if the call is over.
bool LocalGroup::post_task(const TaskPtr& task) {
  if (batching_) throw fail(ErrorCode::internal, "communicator/local: only send and recv may stand in a batch");
  const std::lock_guard lock(host_->mutex());
  task->call.number = calls_ + 1;
  host_->throw_if_aborted([&] { return task->call.where(label_); });
  ++calls_;
  order_after_earlier(*task);
  queue_.push_back(task);
  host_->advance();
  return over(*task);
}

// The last unfinished call of this rank whose buffers conflict with `use`; 0: none.
int64_t LocalGroup::last_user(const Use& use) const {
  int64_t last = 0;
  for (const TaskPtr& task : lasting_)
    if (use.conflicts(task->use)) last = std::max(last, task->call.number);
  for (const TaskPtr& task : queue_)
    if (use.conflicts(task->use)) last = std::max(last, task->call.number);
  return last;
}

// Earlier calls of this rank that use the same memory: every member must have done its part of them, messages must be
// over.
void LocalGroup::order_after_earlier(Task& task) {
  forget_done();
  if (task.use.written.begin == nullptr) return;
  task.call.after = last_user(task.use);
  for (const auto& message : transfers_)
    if (task.use.conflicts(message->use)) task.messages.push_back(message);
}

void LocalGroup::batch_begin() {
  if (batching_) throw fail(ErrorCode::internal, "communicator/local: a batch inside a batch");
  batching_ = true;
}

void LocalGroup::batch_end() {
  if (!batching_) throw fail(ErrorCode::internal, "communicator/local: batch_end without batch_begin");
  const std::lock_guard lock(host_->mutex());
  batching_ = false;
  for (const auto& transfer : transfers_) transfer->batched = false;
  host_->advance();
}

WorkPtr LocalGroup::send(at::Tensor t, int64_t to) { return transfer(true, std::move(t), to); }
WorkPtr LocalGroup::recv(at::Tensor t, int64_t from) { return transfer(false, std::move(t), from); }

WorkPtr LocalGroup::transfer(bool sending, at::Tensor t, int64_t peer) {
  const char* name = sending ? "send" : "recv";
  check(name, t);
  if (peer < 0 || peer >= size())
    throw fail(ErrorCode::config, "communicator/local: ", name, " in group \"", label_, "\" with index ", peer,
               "; wanted one from 0 to ", size() - 1);
  auto work = std::make_shared<Transfer>();
  work->sending = sending, work->peer = peer, work->batched = batching_;
  (sending ? work->use.read : work->use.written) = Range(t);
  work->tensor = std::move(t);
  const std::lock_guard lock(host_->mutex());
  host_->throw_if_aborted([&] { return concat(name_of(CallKind::pairs), " in group \"", label_, "\""); });
  forget_done();
  work->after = last_user(work->use);
  for (const auto& other : transfers_)
    if (!other->batched && other->use.conflicts(work->use)) work->earlier.push_back(other);
  transfers_.push_back(work);
  host_->advance();
  return std::make_shared<TransferWork>(shared_from_this(), std::move(work));
}

}  // namespace drivetrain::local
