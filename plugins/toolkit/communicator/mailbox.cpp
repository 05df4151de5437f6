#include <drivetrain/toolkit/communicator/mailbox.h>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <map>

#include <drivetrain/error.h>
#include <drivetrain/plan_context.h>
#include <drivetrain/toolkit/communicator/call_check.h>
#include <drivetrain/toolkit/communicator/sum_type.h>

#include "kernels/collective/tree_sum.h"
#include "mailbox_post.h"

namespace drivetrain::toolkit {
namespace mailbox {

// What stands in front of every message: the call that its sender made, and the counts of an all_to_all.
struct Head {
  Call call;
  int64_t sent = 0, expected = 0;
};
static_assert(sizeof(Head) % 16 == 0, "what follows is read as numbers");

const char* bytes_of(const at::Tensor& t) { return static_cast<const char*>(t.const_data_ptr()); }
std::string text_of(const at::Tensor& t) {
  return t.nbytes() == 0 ? std::string() : std::string(bytes_of(t), t.nbytes());
}
void copy_to(const at::Tensor& t, const char* from) {
  if (t.nbytes() > 0 && t.const_data_ptr() != from) std::memmove(t.mutable_data_ptr(), from, t.nbytes());
}
// Slice `i` of as many as there are ranks.
at::Tensor slice(const at::Tensor& t, int64_t i, int64_t count) { return t.view({-1}).narrow(0, i * count, count); }

std::vector<int64_t> begins_of(const std::vector<int64_t>& counts) {
  std::vector<int64_t> begins = {0};
  for (const int64_t count : counts) begins.push_back(begins.back() + count);
  return begins;
}

}  // namespace mailbox

class MailboxCommunicator::MailboxGroup final : public Group {
 public:
  MailboxGroup(std::shared_ptr<Post> post, std::vector<int64_t> ranks, std::string label)
      : post_(std::move(post)), ranks_(std::move(ranks)), label_(std::move(label)) {
    me_ = std::find(ranks_.begin(), ranks_.end(), post_->rank()) - ranks_.begin();
    post_->meet(ranks_, label_);
  }
  int64_t rank() const override { return me_; }
  const std::vector<int64_t>& ranks() const override { return ranks_; }
  const std::string& label() const override { return label_; }
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override {
    return at::empty({numel}, at::TensorOptions(dtype));
  }

  WorkPtr all_reduce(at::Tensor t) override {
    check().summed("all_reduce", t);
    const Received got = exchange(call(CallKind::all_reduce, t, t.numel()), [&](int64_t) { return t; });
    return sum(t, t, got);
  }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in) override {
    check().slices("reduce_scatter", in, out);
    check().summed("reduce_scatter", in);
    const auto part = [&](int64_t to) { return mailbox::slice(in, to, out.numel()); };
    const Received got = exchange(call(CallKind::reduce_scatter, in, out.numel()), part);
    return sum(out, part(me_), got);
  }
  WorkPtr all_gather(at::Tensor out, at::Tensor in) override {
    check().slices("all_gather", out, in);
    const Received got = exchange(call(CallKind::all_gather, in, in.numel()), [&](int64_t) { return in; });
    for (int64_t i = 0; i < size(); ++i)
      mailbox::copy_to(mailbox::slice(out, i, in.numel()), i == me_ ? mailbox::bytes_of(in) : got.of(i));
    return completed_work();
  }
  WorkPtr all_to_all(at::Tensor out, at::Tensor in) override {
    check().exchange("all_to_all", out, in);
    const int64_t each = in.numel() / size();
    const auto part = [&](int64_t to) { return mailbox::slice(in, to, each); };
    const Received got = exchange(call(CallKind::all_to_all, in, each), part);
    for (int64_t i = 0; i < size(); ++i)
      mailbox::copy_to(mailbox::slice(out, i, each), i == me_ ? mailbox::bytes_of(part(me_)) : got.of(i));
    return completed_work();
  }
  WorkPtr all_to_all(at::Tensor out, at::Tensor in, const std::vector<int64_t>& received,
                     const std::vector<int64_t>& sent) override {
    const Counts counts{sent, received};
    check().exchange("all_to_all", out, in, counts);
    const std::vector<int64_t> from = mailbox::begins_of(sent), to = mailbox::begins_of(received);
    const auto piece = [](const at::Tensor& t, const std::vector<int64_t>& begins, int64_t i) {
      const auto at = static_cast<size_t>(i);
      return t.view({-1}).narrow(0, begins[at], begins[at + 1] - begins[at]);
    };
    const auto part = [&](int64_t member) { return piece(in, from, member); };
    const Received got = exchange(call(CallKind::all_to_all_counts, in, 0), part, &counts);
    for (int64_t i = 0; i < size(); ++i)
      mailbox::copy_to(piece(out, to, i), i == me_ ? mailbox::bytes_of(part(me_)) : got.of(i));
    return completed_work();
  }
  WorkPtr broadcast(at::Tensor t, int64_t root) override {
    check().tensor("broadcast", t);
    check().index("broadcast", "from", root);
    const at::Tensor none = t.view({-1}).narrow(0, 0, 0);
    const Received got =
        exchange(call(CallKind::broadcast, t, t.numel(), root), [&](int64_t) { return root == me_ ? t : none; });
    if (root != me_) mailbox::copy_to(t, got.of(root));
    return completed_work();
  }
  void barrier() override {
    const at::Tensor none = at::empty({0}, at::kByte);
    exchange(call(CallKind::barrier, none, 0), [&](int64_t) { return none; });
  }

  // Messages of a pair are counted on both sides. A receive takes its message when it is waited for.
  WorkPtr send(at::Tensor t, int64_t to) override {
    const Call made = message(CallKind::send, "send", t, to);
    post_->throw_if_aborted(made.where(label_));
    post_->send(ranks_[static_cast<size_t>(to)], concat(label_, "/message", sent_[to]++), with_head({made}, t));
    return completed_work();
  }
  WorkPtr recv(at::Tensor t, int64_t from) override;
  void batch_begin() override {}
  void batch_end() override {}

 private:
  // The messages of all other members, by their index.
  struct Received {
    std::vector<std::string> messages;
    const char* of(int64_t member) const {
      return messages[static_cast<size_t>(member)].data() + sizeof(mailbox::Head);
    }
  };
  class Receive;

  CallCheck check() const { return {post_->plugin().c_str(), label_, size(), me_, at::kCPU}; }
  Call call(CallKind kind, const at::Tensor& t, int64_t count, int64_t peer = -1) {
    return {kind, t.scalar_type(), count, peer, ++calls_};
  }
  Call message(CallKind kind, const char* name, const at::Tensor& t, int64_t peer) const {
    check().tensor(name, t);
    check().index(name, "with index", peer);
    return {kind, t.scalar_type(), t.numel(), peer, 0};
  }
  static std::string with_head(const mailbox::Head& head, const at::Tensor& t) {
    return std::string(reinterpret_cast<const char*>(&head), sizeof head) + mailbox::text_of(t);
  }
  static mailbox::Head head_of(const std::string& bytes) {
    mailbox::Head head;
    std::memcpy(&head, bytes.data(), std::min(bytes.size(), sizeof head));
    return head;
  }

  // Sends every other member its part and waits for theirs. All of them made the same call.
  Received exchange(const Call& made, const std::function<at::Tensor(int64_t to)>& part,
                    const Counts* counts = nullptr) {
    const std::string where = made.where(label_), name = concat(label_, "/", made.number);
    post_->throw_if_aborted(where);
    std::vector<int64_t> others;
    for (int64_t to = 0; to < size(); ++to) {
      if (to == me_) continue;
      const auto at = static_cast<size_t>(to);
      mailbox::Head head{made};
      if (counts) head.sent = counts->sent[at], head.expected = counts->received[at];
      post_->send(ranks_[at], name, with_head(head, part(to)));
      others.push_back(ranks_[at]);
    }
    Received got{post_->receive(others, name, where, ranks_)};
    got.messages.insert(got.messages.begin() + me_, std::string());
    for (int64_t i = 0; i < size(); ++i)
      if (i != me_) compare(made, counts, i, head_of(got.messages[static_cast<size_t>(i)]));
    return got;
  }

  void compare(const Call& made, const Counts* counts, int64_t member, const mailbox::Head& theirs) {
    const auto at = static_cast<size_t>(member);
    const std::string where = made.where(label_), begin = made.disagreement(label_);
    const int64_t here = ranks_[static_cast<size_t>(me_)], there = ranks_[at];
    if (!made.fits(theirs.call))
      post_->give_up(
          concat(begin, "rank ", here, " called ", made.text(), ", rank ", there, " called ", theirs.call.text()),
          where);
    if (!counts) return;
    if (theirs.sent != counts->received[at])
      post_->give_up(begin + counts_differ(made.dtype, there, theirs.sent, here, counts->received[at]), where);
    if (theirs.expected != counts->sent[at])
      post_->give_up(begin + counts_differ(made.dtype, here, counts->sent[at], there, theirs.expected), where);
  }

  // By the fixed tree, on every rank for itself: the same bits everywhere.
  WorkPtr sum(const at::Tensor& out, const at::Tensor& own, const Received& got) const {
    std::vector<const void*> sources;
    for (int64_t i = 0; i < size(); ++i) sources.push_back(i == me_ ? own.const_data_ptr() : got.of(i));
    static_assert(static_cast<int>(SumType::i64) == static_cast<int>(kernels::SumType::i64));
    const auto type = static_cast<kernels::SumType>(*sum_type(out.scalar_type()));
    const kernels::TreeSum tree{sources.data(), out.mutable_data_ptr(), size(), type};
    if (out.numel() > 0) kernels::tree_sum_cpu(tree, 0, out.numel());
    return completed_work();
  }

  const std::shared_ptr<Post> post_;
  const std::vector<int64_t> ranks_;
  const std::string label_;
  int64_t me_ = 0, calls_ = 0;
  std::map<int64_t, int64_t> sent_, received_;  // messages, by the other's index
};

class MailboxCommunicator::MailboxGroup::Receive final : public Work {
 public:
  Receive(MailboxGroup& group, at::Tensor t, const Call& made, std::string name)
      : post_(group.post_),
        members_(group.ranks_),
        label_(group.label_),
        t_(std::move(t)),
        made_(made),
        name_(std::move(name)) {}
  void wait() override {
    if (done_) return;
    const std::string where = made_.where(label_);
    const int64_t from = members_[static_cast<size_t>(made_.peer)];
    const std::string bytes = post_->receive({from}, name_, where, members_)[0];
    const mailbox::Head head = head_of(bytes);
    if (head.call.count != made_.count || head.call.dtype != made_.dtype)
      post_->give_up(concat("rank ", from, " sends ", head.call.amount(), ", and rank ", post_->rank(), " expects ",
                            made_.amount(), " in group \"", label_, "\""),
                     where);
    mailbox::copy_to(t_, bytes.data() + sizeof head);
    done_ = true;
  }

 private:
  const std::shared_ptr<Post> post_;
  const std::vector<int64_t> members_;
  const std::string label_;
  const at::Tensor t_;
  const Call made_;
  const std::string name_;
  bool done_ = false;
};

WorkPtr MailboxCommunicator::MailboxGroup::recv(at::Tensor t, int64_t from) {
  const Call made = message(CallKind::recv, "recv", t, from);
  return std::make_shared<Receive>(*this, std::move(t), made, concat(label_, "/message", received_[from]++));
}

MailboxCommunicator::MailboxCommunicator(const std::string& plugin, const Services& services, double timeout_s,
                                         std::shared_ptr<Mailbox> mailbox)
    : post_(std::make_shared<Post>(plugin, services, timeout_s, std::move(mailbox))) {}

MailboxCommunicator::~MailboxCommunicator() { post_->close(); }

void MailboxCommunicator::plan(PlanContext& ctx) {
  if (ctx.run().device != "cpu")
    ctx.refuse(concat("moves tensors of the CPU only, and \"device\" is \"", ctx.run().device, "\""));
}

GroupPtr MailboxCommunicator::make_group(const std::vector<int64_t>& ranks, const std::string& label) {
  const bool ascending = std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  if (!ascending || std::find(ranks.begin(), ranks.end(), post_->rank()) == ranks.end())
    throw fail(ErrorCode::internal, post_->plugin(), ": group \"", label, "\" on rank ", post_->rank(),
               ": wanted ascending ranks that contain this one");
  return std::make_shared<MailboxGroup>(post_, ranks, label);
}

void MailboxCommunicator::abort(const std::string& reason) noexcept {
  try {
    post_->raise(concat("rank ", post_->rank(), " aborted: ", reason));
  } catch (...) {
    post_->raise("a rank aborted");  // no memory for the text
  }
}

}  // namespace drivetrain::toolkit
