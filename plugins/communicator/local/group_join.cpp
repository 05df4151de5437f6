// The part of LocalGroup that meets for the first time, and its memory.
#include <ATen/ops/from_blob.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "group.h"

namespace drivetrain::local {
namespace {

int64_t index_of(const std::vector<int64_t>& ranks, int64_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
}

}  // namespace

LocalGroup::LocalGroup(std::shared_ptr<Host> host, std::vector<int64_t> ranks, std::string label)
    : host_(std::move(host)), ranks_(std::move(ranks)), label_(std::move(label)), me_(index_of(ranks_, host_->rank())) {
  join();
}

LocalGroup::~LocalGroup() { host_->remove(*this); }

// Control block, windows and rings are never given back: a peer may still look at them when this rank is done with the
// group.
void LocalGroup::join() {
  Call call;
  call.kind = CallKind::join;
  const std::string where = call.where(label_);
  for (const int64_t rank : ranks_) {
    const bool own = rank == host_->rank();
    peers_.push_back(own ? Peer{rank, getpid(), 0, nullptr} : host_->connect(rank, where, ranks_));
    files_.push_back(own ? host_->memory().base() : peers_.back().file->base());
  }
  const std::string key = "group/" + label_;
  const size_t control_bytes = sizeof(Member) * ranks_.size();
  int64_t control = 0;
  if (me_ == 0) {
    control = host_->memory().allocate(control_bytes);
    memset(files_[0] + control, 0, control_bytes);  // reused pages are not zero
    host_->publish(key, std::to_string(control));
  } else {
    control = std::stoll(host_->await(key, where, concat("rank ", ranks_[0]), ranks_));
  }
  members_ = reinterpret_cast<Member*>(files_[0] + control);
  member(me_).windows_offset = host_->memory().allocate(kWindows * kWindowBytes);
  member(me_).rings_offset = host_->memory().allocate(sizeof(Ring) * ranks_.size());
  for (int64_t p = 0; p < size(); ++p) ring(p, me_).sent = 0, ring(p, me_).taken = 0;
  sources_.resize(ranks_.size());
  targets_.resize(ranks_.size());
  host_->add(*this);
  const auto task = std::make_shared<Task>();
  task->call.kind = CallKind::join;
  task->call.count = size();
  try {
    if (!post_task(task)) wait(task);
  } catch (...) {
    host_->remove(*this);  // no destructor runs
    throw;
  }
}

at::Tensor LocalGroup::allocate(int64_t numel, at::ScalarType dtype) {
  const auto host = host_;
  const int64_t offset = host->memory().allocate(static_cast<size_t>(numel) * c10::elementSize(dtype));
  return at::from_blob(
      host->memory().base() + offset, {numel}, [host, offset](void*) { host->memory().release(offset); },
      at::TensorOptions().dtype(dtype));
}

// The lowest member lends a block of its file. Nobody gets memory if any member has `share` off.
at::Tensor LocalGroup::allocate_once(int64_t numel, at::ScalarType dtype) {
  const auto task = std::make_shared<Task>();
  task->call.kind = CallKind::allocate_once;
  task->call.dtype = static_cast<int32_t>(dtype);
  task->call.count = numel;
  if (host_->share()) {
    task->call.out.rank = ranks_[0];
    try {
      if (me_ == 0)
        task->call.out.offset = host_->memory().lend(static_cast<size_t>(numel) * c10::elementSize(dtype), size());
    } catch (const Error& e) {  // the peers must not wait for us
      host_->abort(concat("rank ", host_->rank(), ": ", e.what()));
      throw;
    }
  }
  if (!post_task(task)) wait(task);
  if (task->block < 0) {
    if (me_ == 0 && host_->share())
      for (int64_t p = 0; p < size(); ++p) SharedFile::let_go(files_[0] + task->call.out.offset);
    return {};
  }
  char* block = files_[0] + task->block;
  return at::from_blob(
      block, {numel}, [host = host_, peer = peers_[0], block](void*) { SharedFile::let_go(block); },
      at::TensorOptions().dtype(dtype));
}

}  // namespace drivetrain::local
