// The part of LocalGroup that waits and explains what it waits for.
#include <drivetrain/toolkit/communicator/rank_list.h>

#include "group.h"

namespace drivetrain::local {
namespace {

// " (a; b)" of those that say something.
std::string note(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts)
    if (!part.empty()) text += (text.empty() ? "" : "; ") + part;
  return text.empty() ? "" : " (" + text + ")";
}

}  // namespace

class LocalGroup::TaskGoal final : public Goal {
 public:
  TaskGoal(LocalGroup& group, const Task& task) : group_(group), task_(task) {}
  bool reached() override {
    if (!group_.over(task_)) return false;
    group_.forget_done();
    return true;
  }
  Obstacle obstacle() override { return group_.obstacle(task_); }
  std::string where() const override { return task_.call.where(group_.label_); }
  void show(bool waiting) override {
    group_.member(group_.me_).waiting_in.store(static_cast<uint32_t>(waiting ? task_.call.kind : CallKind::none));
  }

 private:
  LocalGroup& group_;
  const Task& task_;
};

class LocalGroup::TransferGoal final : public Goal {
 public:
  TransferGoal(LocalGroup& group, const Transfer& transfer) : group_(group), transfer_(transfer) {}
  bool reached() override { return transfer_.finished; }
  Obstacle obstacle() override { return group_.obstacle(transfer_); }
  std::string where() const override {
    return concat("the other end of the ", transfer_.text(), " in group \"", group_.label_, "\"");
  }
  void show(bool waiting) override {
    group_.member(group_.me_).waiting_in.store(static_cast<uint32_t>(waiting ? CallKind::batch : CallKind::none));
  }

 private:
  LocalGroup& group_;
  const Transfer& transfer_;
};

void LocalGroup::wait(const TaskPtr& task) {
  TaskGoal goal(*this, *task);
  host_->wait(goal);
}

void LocalGroup::wait(const std::shared_ptr<Transfer>& transfer) {
  if (transfer->batched)
    throw fail(ErrorCode::internal, "communicator/local: wait for a ", transfer->text(),
               " that did not run; call batch_end first");
  TransferGoal goal(*this, *transfer);
  host_->wait(goal);
}

// Members whose `counter` has not reached `least`.
Obstacle LocalGroup::behind(Counter counter, int64_t least, const std::string& what, bool reached) const {
  std::vector<int64_t> absent, others;
  Obstacle found;
  for (int64_t p = 0; p < size(); ++p) {
    if ((member(p).*counter).load() >= least) {
      others.push_back(p);
      continue;
    }
    if (p == me_) continue;
    absent.push_back(p);
    found.absent.push_back(peers_[static_cast<size_t>(p)]);
  }
  if (absent.empty()) return found;
  // Members wait for each other: where some are stopped, the rest wait for those, as this one does.
  std::vector<int64_t> stopped;
  for (const int64_t p : absent)
    if (host_->is_stopped(peers_[static_cast<size_t>(p)])) stopped.push_back(p);
  if (!stopped.empty()) absent = stopped;
  found.what = concat(who(absent), reached ? " posted " : " did not reach ", what,
                      reached ? " but did not come back to do its part of it" : "");
  const auto inside = static_cast<CallKind>(member(absent.front()).waiting_in.load());
  found.note = note({others.empty() ? "" : who(others) + " did",
                     inside == CallKind::none ? "" : concat("it is in ", name_of(inside))});
  return found;
}

// What keeps `task`: the first call of this group that cannot go on, since parts run in order.
Obstacle LocalGroup::obstacle(const Task& task) const {
  const bool waits_for_others = task.phase == Task::Phase::done || queue_.empty();
  const Task& first = waits_for_others ? task : *queue_.front();
  const std::string where = first.call.where(label_);
  const int64_t turn = first.call.turn;
  if (first.phase == Task::Phase::queued) {
    for (const auto& message : first.messages)
      if (!message->finished) return obstacle(*message);
    return behind(&Member::done, turn - Member::kDepth, where, true);
  }
  if (first.phase == Task::Phase::posted) return behind(&Member::posted, turn, where, false);
  if (first.after > 0) return behind(&Member::done, first.after, where, true);
  return behind(&Member::done, turn, where, true);
}

// Of messages with the same rank and direction only the first open one can move, so it is what keeps the others.
Obstacle LocalGroup::obstacle(const Transfer& transfer) const {
  for (const auto& other : transfers_) {
    if (other->peer != transfer.peer || other->sending != transfer.sending) continue;
    if (other.get() != &transfer) return obstacle(*other);
    break;
  }
  for (const auto& earlier : transfer.earlier)
    if (!earlier->finished) return obstacle(*earlier);
  if (!all(&Member::done, transfer.after))
    return behind(&Member::done, transfer.after, "a collective on the same memory", true);
  Obstacle found;
  found.absent.push_back(peers_[static_cast<size_t>(transfer.peer)]);
  const auto inside = static_cast<CallKind>(member(transfer.peer).waiting_in.load());
  found.what = concat("rank ", ranks_[static_cast<size_t>(transfer.peer)], " did not reach the other end of the ",
                      transfer.text(), " in group \"", label_, "\"");
  found.note = note({inside == CallKind::none ? "" : concat("it is in ", name_of(inside))});
  return found;
}

std::string LocalGroup::who(const std::vector<int64_t>& members) const {
  std::vector<int64_t> ranks;
  for (const int64_t index : members) ranks.push_back(ranks_[static_cast<size_t>(index)]);
  return toolkit::rank_list(ranks);
}

}  // namespace drivetrain::local
