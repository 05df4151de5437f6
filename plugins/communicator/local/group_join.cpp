// The part of LocalGroup that meets for the first time, and its memory.
#include <ATen/ops/from_blob.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "group.h"

namespace drivetrain::local {
namespace {

int64_t index_of(const std::vector<int64_t>& ranks, int64_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
}

int64_t members_bytes(int64_t members) { return members * int64_t{sizeof(Member)}; }

}  // namespace

LocalGroup::LocalGroup(std::shared_ptr<Host> host, std::vector<int64_t> ranks, std::string label)
    : host_(std::move(host)), ranks_(std::move(ranks)), label_(std::move(label)), me_(index_of(ranks_, host_->rank())) {
  join();
}

LocalGroup::~LocalGroup() { host_->remove(*this); }

// Control block, windows and rings are never given back: a peer may still look at them when this rank is done with the
// group.
void LocalGroup::join() {
  toolkit::Call call;
  call.kind = CallKind::make_group;
  const std::string where = call.where(label_);
  for (const int64_t rank : ranks_)
    peers_.push_back(rank == host_->rank() ? Peer{rank, getpid()} : host_->connect(rank, where, ranks_));
  char* const block = control_block(where);
  members_ = reinterpret_cast<Member*>(block);
  counts_ = {reinterpret_cast<int64_t*>(block + members_bytes(size())), size()};
  const Block windows = host_->memory().allocate(kWindows * kWindowBytes);
  const Block rings = host_->memory().allocate(static_cast<int64_t>(sizeof(Ring) * ranks_.size()));
  member(me_).windows_offset = windows.offset;
  member(me_).rings_offset = rings.offset;
  windows_at_.resize(ranks_.size());
  rings_at_.resize(ranks_.size());
  rings_at_[static_cast<size_t>(me_)] = reinterpret_cast<Ring*>(rings.address);
  for (int64_t p = 0; p < size(); ++p) ring(p, me_).clear();
  sources_.resize(ranks_.size());
  targets_.resize(ranks_.size());
  host_->add(*this);
  const auto task = std::make_shared<Task>();
  task->call.kind = CallKind::make_group;
  task->call.count = size();
  try {
    if (!post_task(task)) wait(task);
  } catch (...) {
    host_->remove(*this);  // no destructor runs
    throw;
  }
}

// The lowest member makes it and says where.
char* LocalGroup::control_block(const std::string& where) {
  const std::string key = "group/" + label_;
  const int64_t bytes = members_bytes(size()) + CountTable::bytes(size());
  if (me_ == 0) {
    const Block block = host_->memory().allocate(bytes);
    memset(block.address, 0, static_cast<size_t>(members_bytes(size())));  // reused pages are not zero
    host_->publish(key, std::to_string(block.offset));
    return block.address;
  }
  const std::string said = host_->await(key, where, concat("rank ", ranks_[0]), ranks_);
  int64_t offset = -1;
  const auto [end, failed] = std::from_chars(said.data(), said.data() + said.size(), offset);
  if (failed != std::errc() || end != said.data() + said.size() || offset < 0 || offset % kPage != 0)
    host_->give_up(where, concat("rank ", ranks_[0], " says that the group lies at \"", said, "\""));
  return host_->address_of({ranks_[0], offset}, bytes, ranks_[0]);
}

void LocalGroup::find_windows_and_rings() {
  const auto rings_bytes = static_cast<int64_t>(sizeof(Ring) * ranks_.size());
  for (int64_t p = 0; p < size(); ++p) {
    const int64_t rank = ranks_[static_cast<size_t>(p)];
    const auto in_pages = [](int64_t offset) { return offset % kPage == 0 ? offset : -1; };  // -1 is refused
    const Place windows{rank, in_pages(member(p).windows_offset)}, rings{rank, in_pages(member(p).rings_offset)};
    windows_at_[static_cast<size_t>(p)] = address_of(windows, kWindows * kWindowBytes, p);
    rings_at_[static_cast<size_t>(p)] = reinterpret_cast<Ring*>(address_of(rings, rings_bytes, p));
  }
}

at::Tensor LocalGroup::allocate(int64_t numel, at::ScalarType dtype) {
  const auto host = host_;
  const Block block = host->memory().allocate(numel * static_cast<int64_t>(c10::elementSize(dtype)));
  return at::from_blob(
      block.address, {numel}, [host, offset = block.offset](void*) { host->memory().release(offset); },
      at::TensorOptions().dtype(dtype));
}

// The lowest member lends a block of its memory. Nobody gets memory if any member has `share` off.
at::Tensor LocalGroup::allocate_once(int64_t numel, at::ScalarType dtype) {
  const auto task = std::make_shared<Task>();
  task->call.kind = CallKind::allocate_once;
  task->call.dtype = dtype;
  task->call.count = numel;
  const int64_t bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  Block shared;
  if (host_->share()) {
    task->call.out.rank = ranks_[0];
    try {
      if (me_ == 0) shared = host_->memory().allocate(bytes, size());
      task->call.out.offset = shared.offset;
    } catch (const Error& e) {  // the peers must not wait for us
      host_->abort(concat("rank ", host_->rank(), ": ", e.what()));
      throw;
    }
  }
  if (!post_task(task)) wait(task);
  if (task->block < 0) {
    if (me_ == 0 && host_->share())
      for (int64_t p = 0; p < size(); ++p) SharedMemory::release(shared.address);
    return {};
  }
  return at::from_blob(
      task->once, {numel},
      [host = host_, peer = peers_[0], block = task->once](void*) { SharedMemory::release(block); },
      at::TensorOptions().dtype(dtype));
}

}  // namespace drivetrain::local
