// Saves of two ranks: what they must agree on.
#include "checkpoint/saver.h"

#include <gtest/gtest.h>

#include <ATen/ops/full.h>

#include <drivetrain/error.h>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/rank_threads.h>
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
  std::string committed, discarded;
};

// What each rank's save threw.
std::vector<std::string> save_with(const std::vector<int64_t>& counts, Nowhere& store) {
  const std::shared_ptr<Store> exchange = make_local_store();
  return on_threads(2, [&](int64_t rank) {
    LinesLog log;
    const Mesh mesh({}, 0, 1, nullptr);
    RankEnvironment environment;
    environment.rank = static_cast<int>(rank), environment.world_size = 2;
    at::Tensor weight = at::full({2}, 1.0f);
    int64_t count = counts[static_cast<size_t>(rank)], events = 3 - rank;
    Saver saver({.store = store,
                 .store_id = "checkpoint_store/nowhere",
                 .policies = {{"checkpoint_policy/every", std::make_shared<EveryStep>()}},
                 .exchange = *exchange,
                 .environment = environment,
                 .log = log,
                 .mesh = mesh,
                 .visit =
                     [&](StateVisitor& v) {
                       v.tensor("weight", weight, Layout::whole({2}));
                       v.integer("optimizer/any/count", count);
                       v.integer("monitor/any/events", events);  // may differ: rank 0's monitor alone gets events
                     },
                 .until_update = {},
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
                   .visit =
                       [&](StateVisitor& v) {
                         v.tensor("weight", weight, Layout::whole({2}));
                         if (updated && rank == of) v.tensor("moment", moment, Layout::whole({3}));
                       },
                   .until_update = {},
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

TEST(SaverRanks, equal_counters_are_committed) {
  Nowhere store;
  for (const std::string& error : save_with({5, 5}, store)) EXPECT_EQ(error, "");
  EXPECT_EQ(store.committed, tag_of_step(1));
}

}  // namespace
}  // namespace drivetrain::test
