// The part of LocalGroup that makes calls move. Nothing here waits; the host's mutex is held.
#include <algorithm>

#include "group.h"

namespace drivetrain::local {

bool LocalGroup::all(Counter counter, int64_t least) const {
  for (int64_t p = 0; p < size(); ++p)
    if ((member(p).*counter).load() < least) return false;
  return true;
}

void LocalGroup::say(Counter counter, int64_t value) {
  (member(me_).*counter).store(value);
  for (const Peer& peer : peers_)
    if (peer.file != nullptr) peer.head().bell.ring();
}

bool LocalGroup::advance() {
  bool moved = false;
  while (!transfers_.empty() && advance_transfers()) moved = true;
  while (!queue_.empty()) {
    publish();
    Task& task = *queue_.front();
    if (!run(task)) break;
    moved = true;
    if (task.touched) lasting_.push_back(queue_.front());
    queue_.pop_front();
  }
  return moved;
}

// Posts what the ring has room for, in order.
void LocalGroup::publish() {
  for (size_t next = static_cast<size_t>(posted_ - run_); next < queue_.size(); ++next) {
    Task& task = *queue_[next];
    const int64_t turn = task.call.turn;
    if (!all(&Member::done, turn - Member::kDepth)) return;
    const auto open = [](const auto& message) { return !message->finished; };
    if (std::any_of(task.messages.begin(), task.messages.end(), open)) return;
    task.messages.clear();
    member(me_).calls[turn % Member::kDepth] = task.call;
    std::copy(task.counts.sent.begin(), task.counts.sent.end(), counts_.sent(me_, turn));
    std::copy(task.counts.received.begin(), task.counts.received.end(), counts_.received(me_, turn));
    task.phase = Task::Phase::posted;
    posted_ = turn;
    say(&Member::posted, turn);
  }
}

// True when this rank's part of the call is done.
bool LocalGroup::run(Task& task) {
  if (task.phase == Task::Phase::queued) return false;
  if (task.phase == Task::Phase::posted) {
    if (!all(&Member::posted, task.call.turn)) return false;
    compare(task);
    check_places(task);
    refuse_shared_results(task);
    match(task);
    map_what_is_new(task);
    task.phase = Task::Phase::matched;
  }
  if (task.after > 0 && !all(&Member::done, task.after)) return false;
  task.after = 0;
  if (task.route == Route::windows) {
    if (!run_windows(task)) return false;
  } else {
    move(task);
  }
  task.phase = Task::Phase::done;
  run_ = task.call.turn;
  say(&Member::done, run_);
  return true;
}

void LocalGroup::compare(const Task& task) const {
  for (int64_t p = 0; p < size(); ++p)
    if (!task.call.fits(member(p).call(task.call.turn))) give_up_different(task);
  if (task.call.kind == CallKind::all_to_all_counts) compare_counts(task);
}

// Everybody finds a difference; all write it the same way round. Where one rank differs, it stands alone.
void LocalGroup::give_up_different(const Task& task) const {
  const auto call = [&](int64_t index) -> const PostedCall& { return member(index).call(task.call.turn); };
  std::vector<std::vector<int64_t>> sides;
  for (int64_t p = 0; p < size(); ++p) {
    const auto same = [&](const auto& side) { return call(side.front()).fits(call(p)); };
    const auto side = std::find_if(sides.begin(), sides.end(), same);
    if (side == sides.end())
      sides.push_back({p});
    else
      side->push_back(p);
  }
  std::string text = task.call.disagreement(label_);
  for (const auto& side : sides)
    text += concat(&side == &sides.front() ? "" : ", ", who(side), " called ", call(side.front()).text());
  host_->give_up(task.call.where(label_), text);
}

// So that offsets may be added and subtracted; whether there is memory is found out where it is used.
void LocalGroup::check_places(const Task& task) const {
  for (int64_t p = 0; p < size(); ++p) {
    const PostedCall& call = member(p).call(task.call.turn);
    if (static_cast<uint64_t>(call.in.offset | call.out.offset) >> 47 == 0) continue;  // neither negative nor beyond
    host_->give_up(task.call.where(label_),
                   concat("rank ", ranks_[static_cast<size_t>(p)], " named offsets ", call.in.offset, " and ",
                          call.out.offset, " of shared memory, where there is none"));
  }
}

// Members that write different values into the same memory, as of allocate_once, would end up with any of them.
void LocalGroup::refuse_shared_results(const Task& task) const {
  if (out_elements(task, me_) == 0 || !task.call.out.mapped()) return;
  const int64_t element = task.element(), end = task.call.out.offset + out_elements(task, me_) * element;
  const Place& own = task.call.out;
  for (int64_t p = 0; p < size(); ++p) {
    const Place& other = member(p).call(task.call.turn).out;
    if (p == me_ || other.rank != own.rank) continue;
    if (end <= other.offset || other.offset + out_elements(task, p) * element <= own.offset) continue;
    // Both of them find it and say the same.
    host_->give_up(task.call.where(label_),
                   concat(who({std::min(p, me_), std::max(p, me_)}), " gave the same memory for the result of ",
                          task.call.where(label_), "; each rank needs memory of its own"));
  }
}

// Chooses the route from what all members posted, so that all choose the same.
void LocalGroup::match(Task& task) const {
  const int64_t turn = task.call.turn;
  task.longest = task.call.count;
  bool all_in = true, all_out = true, one_out = true, own_slices = true;
  const Place first = member(0).call(turn).out;
  for (int64_t p = 0; p < size(); ++p) {
    const PostedCall& call = member(p).call(turn);
    all_in &= call.in.mapped();
    all_out &= call.out.mapped();
    one_out &= call.out == first;
    own_slices &= call.in == Place{first.rank, first.offset + p * task.call.count * task.element()};
    task.after = std::max(task.after, call.after);
  }
  const auto choose = [&](bool mapped) { return mapped || size() == 1 ? Route::pull : Route::windows; };
  switch (task.call.kind) {
    case CallKind::make_group:
      task.touched = size() > 1;
      return;
    case CallKind::allocate_once:
      task.touched = size() > 1;
      if (all_out) task.block = first.offset;
      return;
    case CallKind::all_reduce:
    case CallKind::reduce_scatter:
    case CallKind::all_to_all:
      task.route = choose(all_in);
      break;
    case CallKind::all_to_all_counts:
      match_counts(task);
      break;
    case CallKind::broadcast:
      task.route = choose(member(task.call.peer).call(turn).in.mapped());
      break;
    case CallKind::all_gather:
      if (all_out && one_out)
        task.route = own_slices ? Route::nothing : Route::once;
      else
        task.route = !all_in && all_out ? Route::push : choose(all_in);
      break;
    default:
      return;
  }
  if (task.longest == 0) task.route = Route::nothing;
  task.touched = size() > 1 && task.route != Route::nothing && task.route != Route::windows;
  // Nobody reads or writes memory of those who only receive.
  if (task.call.kind == CallKind::broadcast && task.call.peer != me_) task.touched = false;
}

// Memory of members that stays in use after the call: mapped before this rank says that it is done, since a member may
// leave once all are.
void LocalGroup::map_what_is_new(Task& task) {
  if (task.call.kind == CallKind::make_group) find_windows_and_rings();
  if (task.block < 0) return;
  const int64_t bytes = task.call.count * task.element();
  task.once = address_of({ranks_[0], task.block - kPage}, bytes + kPage, 0) + kPage;
}

// A call whose buffers nobody uses any more takes its tensors with it.
void LocalGroup::forget_done() {
  if (lasting_.empty()) return;
  std::erase_if(lasting_, [&](const TaskPtr& task) { return over(*task); });
}

bool LocalGroup::over(const Task& task) const {
  return task.phase == Task::Phase::done && (!task.touched || all(&Member::done, task.call.turn));
}

Ring& LocalGroup::ring(int64_t from, int64_t to) const { return rings_at_[static_cast<size_t>(to)][from]; }

bool LocalGroup::may_move(const Transfer& transfer) const {
  const auto open = [](const auto& other) { return !other->finished; };
  return !transfer.batched && std::none_of(transfer.earlier.begin(), transfer.earlier.end(), open) &&
         all(&Member::done, transfer.after);
}

// One pass over the open messages; of several with the same rank and direction only the first may move.
bool LocalGroup::advance_transfers() {
  bool moved = false;
  std::vector<bool> blocked(static_cast<size_t>(2 * size()));
  for (const auto& transfer : transfers_) {
    Transfer& t = *transfer;
    const size_t end = static_cast<size_t>(2 * t.peer + (t.sending ? 1 : 0));
    if (blocked[end] || !may_move(t)) {
      blocked[end] = true;
      continue;
    }
    if (local::advance(t, t.sending ? ring(me_, t.peer) : ring(t.peer, me_))) {
      moved = true;
      const Peer& peer = peers_[static_cast<size_t>(t.peer)];
      if (peer.file != nullptr) peer.head().bell.ring();
    }
    if (!t.mismatch.empty())
      host_->give_up(concat(name_of(CallKind::batch), " in group \"", label_, "\""),
                     concat("rank ", ranks_[static_cast<size_t>(t.peer)], " sent ", t.mismatch, " where rank ",
                            ranks_[static_cast<size_t>(me_)], " called ", t.text()));
    if (t.finished) t.earlier.clear();
    blocked[end] = !t.finished;
  }
  std::erase_if(transfers_, [](const auto& transfer) { return transfer->finished; });
  return moved;
}

}  // namespace drivetrain::local
