// Saves of two ranks: what they must agree on.
#include "checkpoint/saver.h"

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include <cmath>

#include <drivetrain/error.h>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/rank_threads.h>
#include "checkpoint/agreement.h"
#include "support/save_moments.h"

namespace drivetrain::test {
namespace {

struct EveryStep : CheckpointPolicy {
  bool due(const SaveMoment&) override { return true; }
  std::vector<bool> keep(const std::vector<StoredTag>& tags) override { return std::vector<bool>(tags.size(), true); }
};

struct Nowhere : CheckpointStore {
  void open_place(const std::string&, bool) override {}
  std::vector<StoredTag> tags() const override { return {}; }
  std::shared_ptr<const Checkpoint> open(const std::string&) const override { return nullptr; }
  Value write(Snapshot&) override { return Value::object(); }
  void commit(const std::string& tag, int64_t, const Value&, const std::vector<Value>&) override { committed = tag; }
  void discard(const std::string& tag) noexcept override { discarded = tag; }
  void remove(const std::string&) override {}
  bool failure_ends_run() const override { return ends_run; }
  std::string committed, discarded;
  bool ends_run = true;
};

// What each rank's save threw.
std::vector<std::string> save_with(const std::vector<int64_t>& counts, Nowhere& store,
                                   const std::vector<at::Tensor>& weights = {}) {
  const std::shared_ptr<Store> exchange = make_local_store();
  return on_threads(2, [&](int64_t rank) {
    LinesLog log;
    const Mesh mesh({}, 0, 1, nullptr);
    RankEnvironment environment;
    environment.rank = static_cast<int>(rank), environment.world_size = 2;
    at::Tensor weight = weights.empty() ? at::full({2}, 1.0f) : weights[static_cast<size_t>(rank)];
    int64_t count = counts[static_cast<size_t>(rank)], events = 3 - rank;
    Saver saver({.store = store,
                 .store_id = "checkpoint_store/nowhere",
                 .policies = {{"checkpoint_policy/every", std::make_shared<EveryStep>()}},
                 .exchange = *exchange,
                 .environment = environment,
                 .log = log,
                 .mesh = mesh,
                 .state = {{.name = "model",
                            .visit =
                                [&](StateVisitor& v) {
                                  v.tensor("model/weight", weight, Layout::whole(weight.sizes().vec()));
                                }},
                           {.name = "optimizer/any",
                            .visit = [&](StateVisitor& v) { v.integer("optimizer/any/count", count); }},
                           {.name = "monitor/any",
                            .of_rank_0 = true,
                            .visit = [&](StateVisitor& v) { v.integer("monitor/any/events", events); }}},
                 .facts = Value::object(),
                 .train_steps = 4,
                 .left_behind = {}});
    saver.prepare();
    StepResult result;
    result.step = 1;
    const uint64_t due = saver.due(result, one_figure("loss", 1.0), false);
    saver.after_step(result, one_figure("loss", 1.0), due != 0, false);
  });
}

TEST(SaverRanks, counters_that_differ_are_no_checkpoint_and_named_with_the_rank) {
  Nowhere store;
  for (const std::string& error : save_with({5, 6}, store))
    for (const char* part : {"rank 1 has another optimizer/any/count than rank 0", "the same on every rank"})
      EXPECT_NE(error.find(part), std::string::npos) << error;
  EXPECT_EQ(store.committed, "");
  EXPECT_EQ(store.discarded, tag_of_step(1));
}

// Some optimizers make state in their first update, for parameters that a rank may have none of.
TEST(SaverRanks, state_that_an_update_makes_on_some_ranks_alone_is_saved) {
  for (const int64_t of : {0, 1, 2}) {  // 2: of none
    Nowhere store;
    const std::shared_ptr<Store> exchange = make_local_store();
    const std::vector<std::string> errors = on_threads(2, [&](int64_t rank) {
      LinesLog log;
      const Mesh mesh({}, 0, 1, nullptr);
      RankEnvironment environment;
      environment.rank = static_cast<int>(rank), environment.world_size = 2;
      at::Tensor weight = at::full({2}, 1.0f), moment = at::full({3}, 2.0f);
      bool updated = false;
      Saver saver({.store = store,
                   .store_id = "checkpoint_store/nowhere",
                   .policies = {{"checkpoint_policy/every", std::make_shared<EveryStep>()}},
                   .exchange = *exchange,
                   .environment = environment,
                   .log = log,
                   .mesh = mesh,
                   .state = {{.name = "toy",
                              .visit =
                                  [&](StateVisitor& v) {
                                    v.tensor("weight", weight, Layout::whole({2}));
                                    if (updated && rank == of) v.tensor("moment", moment, Layout::whole({3}));
                                  }}},
                   .facts = Value::object(),
                   .train_steps = 4,
                   .left_behind = {}});
      saver.prepare();
      StepResult result;
      for (result.step = 1; result.step <= 3; ++result.step) {
        result.skipped = result.step == 1;
        updated = updated || result.step > 1;
        saver.after_step(result, one_figure("loss", 1.0), true, result.step == 3);
      }
    });
    EXPECT_EQ(errors, (std::vector<std::string>{"", ""}));
    EXPECT_EQ(store.committed, tag_of_step(3));
  }
}

// A bit of one element, and two elements that have changed places; on the host by words, elsewhere by operators.
TEST(SaverRanks, copies_that_differ_are_no_checkpoint_and_end_the_run_whatever_the_store_says) {
  const at::Tensor weight = at::arange(35, at::TensorOptions(at::kFloat)).view({5, 7});
  at::Tensor bit = weight.clone(), turned = weight.clone();
  bit[4][6].fill_(std::nextafter(34.0f, 0.0f));
  turned[1].copy_(weight[2]), turned[2].copy_(weight[1]);
  for (const at::Tensor& other : {bit, turned}) {
    Nowhere store;
    store.ends_run = false;
    for (const std::string& error : save_with({5, 5}, store, {weight, other}))
      for (const char* part : {"not saved", "copies of the parameter weight", "rank 0 and rank 1", "--resume TAG"})
        EXPECT_NE(error.find(part), std::string::npos) << error;
    EXPECT_EQ(store.committed, "");
  }
}

TEST(SaverRanks, all_that_differs_is_counted_and_parts_of_one_rank_alone_are_not) {
  const auto held = [](const std::vector<HeldPart>& parts) { return held_alike(Value::object(), digests_of(parts)); };
  const auto part = [](const char* name, int64_t row, const at::Tensor& view) {
    return HeldPart{name, {8, 3}, {row, 0, view.size(0), view.size(1)}, view};
  };
  const at::Tensor a = at::arange(12, at::TensorOptions(at::kFloat)).view({4, 3}), b = a + 1;
  const Value zero = held({part("model/a", 0, a), part("model/b", 0, a), part("optimizer/x/a.m", 0, a)});
  const Value one = held({part("model/a", 4, b), part("model/b", 0, a), part("optimizer/x/a.m", 0, b)});
  const Value two = held({part("model/a", 4, a), part("model/b", 0, b)});
  EXPECT_EQ(differing_copies({zero, one}), "") << "each has rows of its own, and the copies are equal";
  const std::string said = differing_copies({zero, one, two});
  for (const char* words : {"parameter a,", "rank 1 and rank 2", "1 other parameter"})
    EXPECT_NE(said.find(words), std::string::npos) << said;
  const at::Tensor across = at::arange(12, at::TensorOptions(at::kFloat)).view({3, 4}).t();
  EXPECT_EQ(differing_copies({held({part("model/a", 0, across)}), held({part("model/a", 0, across.t().clone().t())})}),
            "");
  EXPECT_NE(differing_copies({held({part("model/a", 0, across)}), held({part("model/a", 0, across + 1)})}), "");
}

TEST(SaverRanks, equal_counters_are_committed) {
  Nowhere store;
  for (const std::string& error : save_with({5, 5}, store)) EXPECT_EQ(error, "");
  EXPECT_EQ(store.committed, tag_of_step(1));
}

}  // namespace
}  // namespace drivetrain::test
