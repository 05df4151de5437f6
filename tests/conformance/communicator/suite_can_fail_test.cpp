// The conformance suite of communicator finds what it is there for: communicator/local passes it, and does not with any
// one mistake round about it.
#include "support/mistakes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>

#include <map>

#include <drivetrain/testkit/communicator/suite.h>
#include <drivetrain/testkit/communicator/works.h>

namespace drivetrain::test {
namespace {

using Call = std::function<WorkPtr()>;

struct LateWork : Work {
  explicit LateWork(Call call) : call(std::move(call)) {}
  void wait() override {
    if (const Call now = std::exchange(call, nullptr)) now()->wait();
  }
  Call call;
};

struct OnceWork : Work {
  explicit OnceWork(WorkPtr inner) : inner(std::move(inner)) {}
  void wait() override {
    if (waited++ > 0) throw fail(ErrorCode::internal, "this work was waited for");
    inner->wait();
  }
  const WorkPtr inner;
  int waited = 0;
};

[[noreturn]] void say_nothing() { throw fail(ErrorCode::communication, "the call failed"); }

struct NamelessWork : Work {
  explicit NamelessWork(WorkPtr inner) : inner(std::move(inner)) {}
  void wait() override {
    try {
      inner->wait();
    } catch (const Error&) {
      say_nothing();
    }
  }
  const WorkPtr inner;
};

// A message that is posted when its batch ends.
struct PostedWork : Work {
  void wait() override { posted->wait(); }
  WorkPtr posted;
};

class SpoiledGroup : public Group {
 public:
  SpoiledGroup(GroupPtr inner, std::string mistake) : inner_(std::move(inner)), mistake_(std::move(mistake)) {}
  ~SpoiledGroup() override {
    try {
      finish();
    } catch (const std::exception&) {
    }
  }

  int64_t rank() const override { return inner_->rank(); }
  const std::vector<int64_t>& ranks() const override { return inner_->ranks(); }
  const std::string& label() const override { return inner_->label(); }
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override { return inner_->allocate(numel, dtype); }
  at::Tensor allocate_once(int64_t numel, at::ScalarType dtype) override {
    return is("memory_of_each_rank") ? inner_->allocate(numel, dtype) : inner_->allocate_once(numel, dtype);
  }

  WorkPtr all_reduce(at::Tensor t) override {
    if (is("adds_in_rank_order") && t.scalar_type() == at::kFloat) return t.copy_(sum_from(0, t)), completed_work();
    if (is("forgets_the_end_of_long_ones")) t = t.narrow(0, 0, std::min<int64_t>(t.numel(), 1 << 16));
    return run([this, t] { return inner_->all_reduce(t); });
  }
  WorkPtr all_gather(at::Tensor out, at::Tensor in) override {
    return run([this, out, in] { return inner_->all_gather(out, in); });
  }
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in) override {
    if (is("adds_round_the_ring") && in.scalar_type() == at::kFloat) {
      const at::Tensor sum = sum_from((rank() + 1) % size(), in);
      return out.copy_(sum.narrow(0, rank() * out.numel(), out.numel())), completed_work();
    }
    if (is("clears_its_result_first")) out.zero_();
    return run([this, out, in] { return inner_->reduce_scatter(out, in); });
  }
  WorkPtr all_to_all(at::Tensor out, at::Tensor in) override {
    return run([this, out, in] { return inner_->all_to_all(out, in); });
  }
  WorkPtr all_to_all(at::Tensor out, at::Tensor in, const std::vector<int64_t>& received,
                     const std::vector<int64_t>& sent) override {
    if (is("forgets_uneven_counts")) return with_even_places(out, in, received, sent);
    return run([=, this] { return inner_->all_to_all(out, in, received, sent); });
  }
  WorkPtr broadcast(at::Tensor t, int64_t root) override {
    if (is("always_the_first_root") && root < size()) root = 0;
    return run([this, t, root] { return inner_->broadcast(t, root); });
  }
  WorkPtr send(at::Tensor t, int64_t to) override {
    return run([this, t, to] { return inner_->send(t, to); });
  }
  WorkPtr recv(at::Tensor t, int64_t from) override {
    if (!is("crosses_messages")) return run([this, t, from] { return inner_->recv(t, from); });
    const auto work = std::make_shared<PostedWork>();
    receives_.emplace_back([this, t, from, work] { work->posted = inner_->recv(t, from); });
    return work;
  }
  void batch_begin() override {
    finish();
    in_batch_ = true;
    inner_->batch_begin();
  }
  void batch_end() override {
    in_batch_ = false;
    for (; !receives_.empty(); receives_.pop_back()) receives_.back()();
    inner_->batch_end();
  }
  void barrier() override {
    finish();
    run([this] { return inner_->barrier(), completed_work(); })->wait();
  }

 private:
  bool is(const char* mistake) const { return mistake_ == mistake; }

  WorkPtr run(const Call& call) {
    finish();
    if (is("returns_before_the_transfer") && !in_batch_) return pending_ = call, completed_work();
    if (is("runs_when_waited_for")) return std::make_shared<LateWork>(call);
    if (is("refuses_a_second_wait")) return std::make_shared<OnceWork>(call());
    try {
      return is("names_nobody") ? std::make_shared<NamelessWork>(call()) : call();
    } catch (const Error& e) {
      if (is("names_nobody")) say_nothing();
      if (is("takes_what_does_not_fit") && e.code() == ErrorCode::config) return completed_work();
      throw;
    }
  }
  // What was to be done before, and was not when it was waited for.
  void finish() {
    if (const Call call = std::exchange(pending_, nullptr)) call()->wait();
  }

  at::Tensor sum_from(int64_t first, const at::Tensor& t) {
    const int64_t n = t.numel();
    const at::Tensor all = at::empty({size() * n}, t.options());
    inner_->all_gather(all, t)->wait();
    at::Tensor sum = all.narrow(0, first * n, n).clone();
    for (int64_t i = 1; i < size(); ++i) sum.add_(all.narrow(0, (first + i) % size() * n, n));
    return sum;
  }

  // Each rank's slice where it would be if all were alike.
  WorkPtr with_even_places(const at::Tensor& out, const at::Tensor& in, const std::vector<int64_t>& received,
                           const std::vector<int64_t>& sent) {
    const at::Tensor right = at::empty_like(out);
    inner_->all_to_all(right, in, received, sent)->wait();
    const int64_t each = out.numel() / size();
    int64_t begin = 0;
    for (int64_t p = 0; p < size(); begin += received[static_cast<size_t>(p++)]) {
      const int64_t n = std::min(received[static_cast<size_t>(p)], out.numel() - p * each);
      out.narrow(0, p * each, n).copy_(right.narrow(0, begin, n));
    }
    return completed_work();
  }

  const GroupPtr inner_;
  const std::string mistake_;
  bool in_batch_ = false;
  Call pending_;
  std::vector<std::function<void()>> receives_;
};

class SpoiledCommunicator : public Communicator {
 public:
  SpoiledCommunicator(std::shared_ptr<Communicator> inner, std::string mistake)
      : inner_(std::move(inner)), mistake_(std::move(mistake)) {}
  GroupPtr make_group(const std::vector<int64_t>& ranks, const std::string& label) override {
    const GroupPtr group = std::make_shared<SpoiledGroup>(inner_->make_group(ranks, label), mistake_);
    return mistake_ == "one_group_of_each_size" ? groups_.emplace(ranks.size(), group).first->second : group;
  }
  void abort(const std::string& reason) noexcept override {
    if (mistake_ != "tells_nobody_of_an_abort") inner_->abort(reason);
  }

 private:
  const std::shared_ptr<Communicator> inner_;
  const std::string mistake_;
  std::map<size_t, GroupPtr> groups_;
};

// Communicators of the suite have this mistake until the object is gone. `timeout_s`: a rank that waits in vain shows.
struct Spoiled {
  explicit Spoiled(const std::string& mistake, const char* timeout_s)
      : maker(communicator_maker), usual(usual_options) {
    usual_options = concat("{\"timeout_s\": ", timeout_s, "}");
    communicator_maker = [mistake](const std::string& json, const Services& services) {
      return std::make_shared<SpoiledCommunicator>(installed_plugins().make<Communicator>("local", json, services),
                                                   mistake);
    };
  }
  ~Spoiled() { communicator_maker = maker, usual_options = usual; }
  const CommunicatorMaker maker;
  const std::string usual;
};

// Of every case as little as its mistakes need.
const std::map<std::string, std::function<void()>> kCases = {
    {"collectives", [] { collectives_match_a_local_computation({3}); }},
    {"large_collectives", [] { large_collectives_match_a_local_computation({2}); }},
    {"fixed_tree", [] { sums_follow_the_fixed_tree(4); }},
    {"overlapping_groups", overlapping_groups_do_not_disturb_each_other},
    {"any_order_of_waits", [] { works_may_be_waited_for_in_any_order({2}, 30); }},
    {"order_of_calls", [] { calls_take_effect_in_the_order_in_which_they_were_made({2}); }},
    {"memory_that_exists_once", [] { memory_that_exists_once_holds_what_each_rank_wrote({2}); }},
    {"waiting_anywhere", waiting_anywhere_drives_the_works_of_all_groups},
    {"abort", abort_ends_a_wait_everywhere},
    {"different_calls", different_calls_are_named},
    {"different_counts", counts_that_differ_are_named},
    {"wrong_counts", wrong_counts_are_refused},
    {"wrong_shapes", wrong_shapes_are_refused},
    {"a_rank_that_leaves", a_rank_that_leaves_is_named},
    {"a_late_rank", a_late_rank_is_named_after_the_timeout},
};

void expect_finds(const std::vector<PlantedMistake>& mistakes, const char* timeout_s = "20") {
  for (const PlantedMistake& planted : mistakes) {
    SCOPED_TRACE(planted.name);
    const Spoiled spoiled(planted.name, timeout_s);
    expect_found(planted, failures_of(kCases.at(planted.found_by)));
  }
}

TEST(CommunicatorSuite, accepts_a_right_communicator) {
  const Spoiled none("", "20");
  for (const auto& [name, run] : kCases) {
    SCOPED_TRACE(name);
    run();
  }
}

TEST(CommunicatorSuite, finds_every_mistake_in_numbers) {
  expect_finds({
      {"adds_in_rank_order", "fixed_tree", "all_reduce over 4 ranks"},
      {"adds_round_the_ring", "fixed_tree", "reduce_scatter and all_gather over"},
      {"forgets_the_end_of_long_ones", "large_collectives", "all_reduce of 300007"},
      {"clears_its_result_first", "collectives", "reduce_scatter into its input"},
      {"forgets_uneven_counts", "collectives", "all_to_all with counts"},
      {"always_the_first_root", "collectives", "broadcast"},
      {"crosses_messages", "collectives", "second recv"},
      {"one_group_of_each_size", "overlapping_groups", "same_bits"},
  });
}

TEST(CommunicatorSuite, finds_every_mistake_of_works_and_memory) {
  expect_finds({
      {"returns_before_the_transfer", "collectives", "all_gather of"},
      {"returns_before_the_transfer", "any_order_of_waits", "all_reduce of"},
      {"refuses_a_second_wait", "any_order_of_waits", "was waited for"},
      {"runs_when_waited_for", "order_of_calls", "a sum of gathered sums"},
      {"memory_of_each_rank", "memory_that_exists_once", "after a barrier"},
  });
  expect_finds({{"runs_when_waited_for", "waiting_anywhere", "within 0.5 s"}}, "0.5");
}

TEST(CommunicatorSuite, finds_every_mistake_of_failing) {
  expect_finds({
      {"names_nobody", "different_calls", "ranks disagree about call #1"},
      {"names_nobody", "different_counts", "ranks disagree about call #1"},
      {"names_nobody", "a_rank_that_leaves", "rank 1 (pid "},
      {"names_nobody", "a_late_rank", "rank 2 did not reach"},
      {"takes_what_does_not_fit", "wrong_shapes", "do not fit"},
      {"takes_what_does_not_fit", "wrong_counts", "wanted 2 counts"},
  });
  expect_finds({{"tells_nobody_of_an_abort", "abort", "disk full"}}, "0.5");
}

}  // namespace
}  // namespace drivetrain::test
