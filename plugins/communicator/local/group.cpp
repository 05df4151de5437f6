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

toolkit::CallCheck LocalGroup::check() const { return {"communicator/local", label_, size(), me_, at::kCPU}; }

WorkPtr LocalGroup::all_reduce(at::Tensor t) {
  check().summed("all_reduce", t);
  const int64_t count = t.numel();
  at::Tensor in = t;
  return post(CallKind::all_reduce, std::move(in), std::move(t), count);
}

WorkPtr LocalGroup::all_gather(at::Tensor out, at::Tensor in) {
  check().slices("all_gather", out, in);
  const int64_t count = in.numel();
  return post(CallKind::all_gather, std::move(in), std::move(out), count);
}

WorkPtr LocalGroup::reduce_scatter(at::Tensor out, at::Tensor in) {
  check().slices("reduce_scatter", in, out);
  check().summed("reduce_scatter", in);
  const int64_t count = out.numel();
  return post(CallKind::reduce_scatter, std::move(in), std::move(out), count);
}

WorkPtr LocalGroup::all_to_all(at::Tensor out, at::Tensor in) {
  check().exchange("all_to_all", out, in);
  const int64_t count = in.numel() / size();
  return post(CallKind::all_to_all, std::move(in), std::move(out), count);
}

WorkPtr LocalGroup::all_to_all(at::Tensor out, at::Tensor in, const std::vector<int64_t>& received,
                               const std::vector<int64_t>& sent) {
  toolkit::Counts counts{sent, received};
  check().exchange("all_to_all", out, in, counts);
  const TaskPtr task = task_of(CallKind::all_to_all_counts, std::move(in), std::move(out), 0);
  task->counts = std::move(counts);
  return post(task);
}

WorkPtr LocalGroup::broadcast(at::Tensor t, int64_t root) {
  check().tensor("broadcast", t);
  check().index("broadcast", "from", root);
  const int64_t count = t.numel();
  at::Tensor in = t;
  return post(CallKind::broadcast, std::move(in), std::move(t), count, root);
}

void LocalGroup::barrier() {
  const auto task = std::make_shared<Task>();
  task->call.kind = CallKind::barrier;
  if (!post_task(task)) wait(task);
}

TaskPtr LocalGroup::task_of(CallKind kind, at::Tensor in, at::Tensor out, int64_t count, int64_t root) const {
  auto task = std::make_shared<Task>();
  task->call.kind = kind;
  task->call.dtype = in.scalar_type();
  task->call.count = count;
  task->call.peer = root;
  const Range read(in), written(out);
  task->use = {{read}, {written}};
  task->call.in = host_->place_of(read.begin);
  task->call.out = written.begin == read.begin ? task->call.in : host_->place_of(written.begin);
  task->in = std::move(in);
  task->out = std::move(out);
  return task;
}

WorkPtr LocalGroup::post(CallKind kind, at::Tensor in, at::Tensor out, int64_t count, int64_t root) {
  return post(task_of(kind, std::move(in), std::move(out), count, root));
}

WorkPtr LocalGroup::post(const TaskPtr& task) {
  if (post_task(task)) return completed_work();
  return std::make_shared<TaskWork>(shared_from_this(), task);
}

// Ring slots that peers still read make a call wait in the queue, not the caller. True if the call is over.
bool LocalGroup::post_task(const TaskPtr& task) {
  if (batching_) throw fail(ErrorCode::internal, "communicator/local: only send and recv may stand in a batch");
  const std::lock_guard lock(host_->mutex());
  task->call.turn = calls_ + 1;
  task->call.number = calls_;  // as callers count: make_group is none of theirs
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
    if (use.conflicts(task->use)) last = std::max(last, task->call.turn);
  for (const TaskPtr& task : queue_)
    if (use.conflicts(task->use)) last = std::max(last, task->call.turn);
  return last;
}

// Earlier calls of this rank that use the same memory: every member must have done its part of them, messages must be
// over.
void LocalGroup::order_after_earlier(Task& task) {
  forget_done();
  if (task.use.written.empty()) return;
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
  check().tensor(name, t);
  check().index(name, "with index", peer);
  auto work = std::make_shared<Transfer>();
  work->sending = sending, work->peer = peer, work->batched = batching_;
  (sending ? work->use.read : work->use.written).emplace_back(t);
  work->tensor = std::move(t);
  const std::lock_guard lock(host_->mutex());
  host_->throw_if_aborted([&] { return concat(name_of(CallKind::batch), " in group \"", label_, "\""); });
  forget_done();
  work->after = last_user(work->use);
  for (const auto& other : transfers_)
    if (!other->batched && other->use.conflicts(work->use)) work->earlier.push_back(other);
  transfers_.push_back(work);
  host_->advance();
  return std::make_shared<TransferWork>(shared_from_this(), std::move(work));
}

}  // namespace drivetrain::local
