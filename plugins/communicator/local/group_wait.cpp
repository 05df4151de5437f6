// The part of LocalGroup that meets, waits, compares and explains; and the point-to-point calls.
#include <algorithm>
#include <cstring>

#include "group.h"
#include "sums.h"

namespace drivetrain::local {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSmallBytes = 64 << 10;
constexpr int kSliceMs = 50;
constexpr auto kLookEvery = std::chrono::milliseconds(100);
const char* const kNames[] = {"nothing",    "make_group", "all_reduce", "all_gather",  "reduce_scatter",
                              "all_to_all", "broadcast",  "barrier",    "send or recv"};

int64_t index_of(const std::vector<int64_t>& ranks, int64_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
}

}  // namespace

struct LocalGroup::PairWork final : Work {
  Transfer transfer;
  void wait() override {
    if (!transfer.finished)
      throw fail(ErrorCode::internal, "communicator/local: wait for a ", transfer.text(),
                 " that did not run; call batch_end first");
  }
};

bool Call::fits(const Call& other) const {
  return kind == other.kind && dtype == other.dtype && count == other.count && root == other.root;
}

std::string Call::text() const {
  std::string text = kNames[static_cast<int>(kind)];
  if (kind == CallKind::barrier || kind == CallKind::join) return text;
  text += concat(" of ", count, " ", c10::toString(static_cast<at::ScalarType>(dtype)));
  if (kind == CallKind::all_gather || kind == CallKind::reduce_scatter || kind == CallKind::all_to_all)
    text += " per rank";
  return root < 0 ? text : concat(text, " from index ", root);
}

LocalGroup::LocalGroup(std::shared_ptr<Host> host, std::vector<int64_t> ranks, std::string label)
    : host_(std::move(host)), ranks_(std::move(ranks)), label_(std::move(label)), me_(index_of(ranks_, host_->rank())) {
  current_.kind = CallKind::join;
  join();
}

LocalGroup::~LocalGroup() = default;

// Control block and rings are never given back: a peer may still look at them when this rank is done with the group.
void LocalGroup::join() {
  for (const int64_t rank : ranks_) {
    const bool own = rank == host_->rank();
    peers_.push_back(own ? Peer{rank, getpid(), 0, nullptr} : host_->connect(rank, where()));
    files_.push_back(own ? host_->memory().base() : peers_.back().file->base());
  }
  const std::string key = "group/" + label_;
  const size_t control_bytes = sizeof(Control) + sizeof(Member) * ranks_.size();
  int64_t control = 0;
  if (me_ == 0) {
    control = host_->memory().allocate(control_bytes);
    memset(file(0) + control, 0, control_bytes);  // reused pages are not zero
    host_->publish(key, std::to_string(control));
  } else {
    control = std::stoll(host_->await(key, where(), concat("rank ", ranks_[0])));
  }
  control_ = reinterpret_cast<Control*>(file(0) + control);
  member(me_).windows_offset = host_->memory().allocate(2 * kWindowBytes);
  member(me_).rings_offset = host_->memory().allocate(sizeof(Ring) * ranks_.size());
  for (int64_t p = 0; p < size(); ++p) ring(p, me_).sent = 0, ring(p, me_).taken = 0;
  Call posted;
  posted.kind = CallKind::join;
  posted.count = size();
  begin(posted);
  meet();
  compare();
  finish();
}

char* LocalGroup::window(int64_t index) const {
  return file(index) + member(index).windows_offset + (windows_ % 2 == 0 ? 0 : kWindowBytes);
}

Ring& LocalGroup::ring(int64_t from, int64_t to) const {
  return reinterpret_cast<Ring*>(file(to) + member(to).rings_offset)[from];
}

void LocalGroup::check(const char* name, const at::Tensor& t, bool sums) const {
  const auto refuse = [&](const auto&... problem) {
    throw fail(ErrorCode::config, "communicator/local: ", name, " in group \"", label_, "\": ", problem...);
  };
  if (!t.defined()) refuse("the tensor is undefined");
  if (!t.device().is_cpu()) refuse("wanted a tensor in CPU memory, found ", t.device().str());
  if (!t.is_contiguous()) refuse("wanted a contiguous tensor, found strides ", t.strides());
  if (sums && !can_sum(t.scalar_type())) refuse("no sum over ", c10::toString(t.scalar_type()));
}

void LocalGroup::check_sizes(const char* name, const at::Tensor& whole, const at::Tensor& slice, bool equal) const {
  check(name, whole);
  check(name, slice);
  const std::string begin = concat("communicator/local: ", name, " in group \"", label_, "\": ");
  if (whole.scalar_type() != slice.scalar_type())
    throw fail(ErrorCode::config, begin, "dtypes differ, ", c10::toString(whole.scalar_type()), " and ",
               c10::toString(slice.scalar_type()));
  const bool fits =
      equal ? whole.numel() == slice.numel() && whole.numel() % size() == 0 : whole.numel() == slice.numel() * size();
  if (!fits)
    throw fail(ErrorCode::config, begin, whole.numel(), " elements do not fit ", slice.numel(), " elements ",
               equal ? "cut into" : "from each of", " ", size(), " ranks");
}

Call LocalGroup::call(CallKind kind, const at::Tensor& read, int64_t count, int64_t root) const {
  // Reading in place costs a second barrier, which pays only for what does not fit the caches anyway.
  const int64_t offset = read.nbytes() <= kSmallBytes ? -1 : host_->memory().offset_of(read.const_data_ptr());
  return {kind, static_cast<int32_t>(read.scalar_type()), count, root, offset < 0 ? kStaged : offset, 0};
}

void LocalGroup::begin(Call& posted) {
  if (batching_) throw fail(ErrorCode::internal, "communicator/local: only send and recv may stand in a batch");
  posted.number = posted.kind == CallKind::join ? 0 : ++calls_;
  current_ = posted;
  host_->throw_if_aborted(where());
  member(me_).calls[posted.number % 2] = posted;
  member(me_).doing.store(static_cast<uint32_t>(posted.kind));
}

void LocalGroup::finish() { member(me_).doing.store(0); }

void LocalGroup::meet() {
  const uint32_t seen = control_->gate.word.load();  // cannot move before we arrive
  member(me_).arrived.store(seen + 1);
  if (control_->count.fetch_add(1) + 1 == static_cast<uint32_t>(size())) {
    control_->count.store(0);
    control_->gate.ring();
    return;
  }
  const auto missing = [&] {
    std::vector<int64_t> list;
    for (int64_t p = 0; p < size(); ++p)
      if (member(p).arrived.load() != seen + 1) list.push_back(p);
    return list;
  };
  wait(control_->gate, seen, missing, where());
}

void LocalGroup::compare() const {
  for (int64_t p = 0; p < size(); ++p) {
    const Call& other = member(p).calls[current_.number % 2];
    if (current_.fits(other)) continue;
    // Everybody finds a difference; all write it the same way round.
    const auto text = [&](int64_t index) {
      return concat("rank ", ranks_[static_cast<size_t>(index)], " called ",
                    member(index).calls[current_.number % 2].text());
    };
    int64_t odd = 1;
    while (member(odd).calls[current_.number % 2].fits(member(0).calls[current_.number % 2])) ++odd;
    host_->give_up(where(), concat("ranks disagree about call #", current_.number, " of group \"", label_,
                                   "\": ", text(0), ", ", text(odd)));
  }
}

void LocalGroup::wait(Bell& bell, uint32_t seen, const std::function<std::vector<int64_t>()>& missing,
                      const std::string& what) {
  for (int64_t i = 0; i < host_->spin(); ++i) {
    if (bell.rang_since(seen)) return;
    pause_core();
  }
  const auto start = Clock::now();
  for (auto looked = start; !bell.rang_since(seen);) {
    bell.sleep(seen, kSliceMs);
    const auto now = Clock::now();
    if (bell.rang_since(seen) || now - looked < kLookEvery) continue;
    looked = now;
    host_->throw_if_aborted(what);
    const auto absent = missing();
    for (const int64_t p : absent) {
      const std::string cause = host_->lost(peers_[static_cast<size_t>(p)]);
      if (cause.empty() || bell.rang_since(seen)) continue;
      // It may have arrived and left in order just before we looked.
      const auto still = missing();
      if (std::find(still.begin(), still.end(), p) != still.end()) host_->give_up(what, cause);
    }
    if (now - start < std::chrono::duration<double>(host_->timeout_s()) || absent.empty() || bell.rang_since(seen))
      continue;
    std::vector<int64_t> others;
    for (int64_t p = 0; p < size(); ++p)
      if (std::find(absent.begin(), absent.end(), p) == absent.end()) others.push_back(p);
    const uint32_t doing = member(absent.front()).doing.load();
    host_->give_up(what, concat(who(absent), " did not reach ", what, " within ", host_->timeout_s(), " s (",
                                who(others), " did", doing == 0 ? "" : concat("; it is in ", kNames[doing]), ")"));
  }
}

std::string LocalGroup::who(const std::vector<int64_t>& members) const {
  std::string text = members.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < members.size(); ++i)
    text += concat(i == 0 ? "" : i + 1 == members.size() ? " and " : ", ", ranks_[static_cast<size_t>(members[i])]);
  return text;
}

std::string LocalGroup::where() const {
  const char* name = kNames[static_cast<int>(current_.kind)];
  if (current_.kind == CallKind::join) return concat(name, " of group \"", label_, "\"");
  if (current_.kind == CallKind::pairs) return concat(name, " in group \"", label_, "\"");
  return concat(name, " #", current_.number, " of group \"", label_, "\"");
}

void LocalGroup::batch_begin() {
  if (batching_) throw fail(ErrorCode::internal, "communicator/local: a batch inside a batch");
  batching_ = true;
}

void LocalGroup::batch_end() {
  if (!batching_) throw fail(ErrorCode::internal, "communicator/local: batch_end without batch_begin");
  batching_ = false;
  run_transfers();
}

WorkPtr LocalGroup::send(at::Tensor t, int64_t to) { return transfer(true, std::move(t), to); }
WorkPtr LocalGroup::recv(at::Tensor t, int64_t from) { return transfer(false, std::move(t), from); }

WorkPtr LocalGroup::transfer(bool sending, at::Tensor t, int64_t peer) {
  const char* name = sending ? "send" : "recv";
  check(name, t);
  if (peer < 0 || peer >= size())
    throw fail(ErrorCode::config, "communicator/local: ", name, " in group \"", label_, "\" with index ", peer,
               "; wanted one from 0 to ", size() - 1);
  auto work = std::make_shared<PairWork>();
  work->transfer.sending = sending, work->transfer.tensor = std::move(t), work->transfer.peer = peer;
  transfers_.push_back(work);
  if (!batching_) run_transfers();
  return work;
}

// One pass over the open transfers; of several with the same rank and direction only the first may move.
bool LocalGroup::advance_all() {
  bool moved = false;
  std::vector<bool> blocked(static_cast<size_t>(2 * size()));
  for (const auto& work : transfers_) {
    Transfer& t = work->transfer;
    const size_t end = static_cast<size_t>(2 * t.peer + (t.sending ? 1 : 0));
    if (t.finished || blocked[end]) continue;
    if (advance(t, t.sending ? ring(me_, t.peer) : ring(t.peer, me_))) {
      moved = true;
      member(t.peer).bell.ring();
    }
    if (!t.mismatch.empty())
      host_->give_up(where(), concat("rank ", ranks_[static_cast<size_t>(t.peer)], " sent ", t.mismatch, " where rank ",
                                     ranks_[static_cast<size_t>(me_)], " called ", t.text()));
    blocked[end] = !t.finished;
  }
  return moved;
}

void LocalGroup::run_transfers() {
  current_ = Call{};
  current_.kind = CallKind::pairs;
  host_->throw_if_aborted(where());
  member(me_).doing.store(static_cast<uint32_t>(current_.kind));
  const auto missing = [&] {
    std::vector<int64_t> list;
    for (const auto& work : transfers_)
      if (!work->transfer.finished && std::find(list.begin(), list.end(), work->transfer.peer) == list.end())
        list.push_back(work->transfer.peer);
    std::sort(list.begin(), list.end());
    return list;
  };
  for (;;) {
    const uint32_t seen = member(me_).bell.word.load();
    const bool moved = advance_all();
    const auto open =
        std::find_if(transfers_.begin(), transfers_.end(), [](const auto& w) { return !w->transfer.finished; });
    if (open == transfers_.end()) break;
    if (moved) continue;
    wait(member(me_).bell, seen, missing,
         concat("the other end of the ", (*open)->transfer.text(), " in group \"", label_, "\""));
  }
  transfers_.clear();
  finish();
}

}  // namespace drivetrain::local
