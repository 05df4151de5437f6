// Saves of one rank into a store in memory: who is asked, what stays, what is written, and what a failure does.
#include "checkpoint/saver.h"

#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <future>

#include <drivetrain/error.h>

#include <drivetrain/testkit/kit/host.h>
#include "support/save_moments.h"
#include "support/waiting.h"

namespace drivetrain::test {
namespace {

struct ToyPolicy : CheckpointPolicy {
  bool due(const SaveMoment& moment) override { return asked.push_back(moment), when(moment); }
  std::vector<bool> keep(const std::vector<StoredTag>& tags) override { return which(tags); }
  std::vector<SaveMoment> asked;
  std::function<bool(const SaveMoment&)> when = [](const SaveMoment&) { return false; };
  std::function<std::vector<bool>(const std::vector<StoredTag>&)> which = [](const auto& tags) {
    return std::vector<bool>(tags.size(), false);
  };
};

struct MemoryStore : CheckpointStore {
  struct Saved {
    std::map<std::string, at::Tensor> tensors;
    Value facts;
  };
  bool asynchronous() const override { return gate != nullptr; }
  bool failure_ends_run() const override { return ends_run; }
  void open_place(const std::string&, bool) override {}
  std::vector<StoredTag> tags() const override {
    if (!unlisted.empty()) throw fail(ErrorCode::io, unlisted);
    std::vector<StoredTag> list;
    for (auto of = complete.rbegin(); of != complete.rend(); ++of) {
      StoredTag tag;
      tag.tag = of->first, tag.step = std::stoll(of->first.substr(5));
      tag.figures = *of->second.facts.find("figures");
      if (const Value* run = of->second.facts.find("run_id")) tag.run_id = run->as_string();
      list.push_back(tag);
    }
    return list;
  }
  std::shared_ptr<const Checkpoint> open(const std::string&) const override { return nullptr; }
  Value write(Snapshot& snapshot) override {
    if (gate) gate->get_future().wait();
    if (!fails.empty()) throw fail(ErrorCode::io, fails);
    for (const StateSlice& slice : snapshot.slices) writing.tensors[slice.name] = slice.data.clone();
    return Value::object();
  }
  void commit(const std::string& tag, int64_t, const Value& facts, const std::vector<Value>& parts) override {
    EXPECT_EQ(parts.size(), 1u);
    writing.facts = facts;
    complete[tag] = std::exchange(writing, {});
  }
  void discard(const std::string& tag) noexcept override { discarded.push_back(tag); }
  void remove(const std::string& tag) override {
    if (tag == stays) throw fail(ErrorCode::io, tag, " cannot be removed");
    if (complete.erase(tag) == 0) throw fail(ErrorCode::checkpoint, tag, " is not there");
  }

  std::map<std::string, Saved> complete;
  std::vector<std::string> discarded;
  Saved writing;
  std::string fails;                         // what a write says that fails; "": none does
  std::string unlisted, stays;               // what `tags` says that fails; the tag that cannot be removed
  bool ends_run = true;                      // if it fails
  std::unique_ptr<std::promise<void>> gate;  // that a write waits for, on a thread of its own
};

struct SaverTest : testing::Test {
  Saver make() {
    std::vector<NamedPolicy> named;
    for (const auto& policy : policies) named.push_back({"checkpoint_policy/toy", policy});
    return Saver({.store = store,
                  .store_id = "checkpoint_store/memory",
                  .policies = named,
                  .exchange = *exchange,
                  .environment = {},
                  .log = log,
                  .mesh = mesh,
                  .state = {{.name = "toy", .visit = visit}},
                  .facts = Value::Object{{"config", "of the run"}, {"run_id", "mine"}},
                  .train_steps = 4,
                  .left_behind = left_behind,
                  .run_id = "mine",
                  .check_place = check_place});
  }
  ToyPolicy& add_policy(std::vector<int64_t> steps = {}) {
    policies.push_back(std::make_shared<ToyPolicy>());
    policies.back()->when = [steps](const SaveMoment& moment) {
      return std::find(steps.begin(), steps.end(), moment.step) != steps.end();
    };
    return *policies.back();
  }
  static void step(Saver& saver, int64_t number, bool last = false) {
    StepResult result;
    result.step = number;
    take(saver, result, one_figure("loss", static_cast<double>(number)), last);
  }
  static void take(Saver& saver, const StepResult& result, const Value& figures, bool last) {
    const bool save = saver.due(result, figures, last) != 0;
    saver.after_step(result, figures, save, last);
  }
  std::vector<std::string> complete() const {
    std::vector<std::string> names;
    for (const auto& [tag, saved] : store.complete) names.push_back(tag);
    return names;
  }

  MemoryStore store;
  std::vector<std::string> left_behind;
  std::function<void()> check_place;
  std::vector<std::shared_ptr<ToyPolicy>> policies;
  const std::shared_ptr<Store> exchange = make_local_store();
  LinesLog log;
  const Mesh mesh{{}, 0, 1, nullptr};
  at::Tensor weight = at::full({2, 3}, 1.0f);
  int64_t count = 5;
  std::function<void(StateVisitor&)> visit = [this](StateVisitor& v) {
    v.tensor("weight", weight, Layout::whole({2, 3}));
    v.integer("count", count);
  };
};

// A signal may come in the very last step.
TEST_F(SaverTest, a_run_that_made_all_its_steps_is_done) {
  const ToyPolicy& policy = add_policy();
  Saver saver = make();
  StepResult result;
  result.step = 4, result.stop = true, result.signal = 15;
  take(saver, result, one_figure("loss", 1), true);
  EXPECT_TRUE(policy.asked.back().done);
}

TEST_F(SaverTest, checkpoints_of_a_run_that_was_left_go_when_the_next_one_comes) {
  left_behind = {"step-00000008", "step-00000009"};
  for (const std::string& tag : {left_behind[0], left_behind[1], std::string("step-00000001")})
    store.complete[tag].facts = parse_json(R"({"figures": {}})", "test");
  add_policy({3}).which = [](const auto& tags) { return std::vector<bool>(tags.size(), true); };
  Saver saver = make();
  for (int64_t n = 2; n <= 3; ++n) step(saver, n);
  saver.finish();
  EXPECT_EQ(complete(), (std::vector<std::string>{"step-00000001", "step-00000003"}));
}

// Else a tag of the run that was left would be the newest as soon as one save had failed.
TEST_F(SaverTest, a_checkpoint_that_was_left_and_cannot_be_removed_is_tried_again_before_the_next_commit) {
  left_behind = {"step-00000009", "step-00000008", "step-00000007"};  // the last one was removed by hand
  for (const char* tag : {"step-00000008", "step-00000009"}) store.complete[tag].facts.set("figures", Value::object());
  store.stays = "step-00000008", store.ends_run = false;
  add_policy({3, 4});
  Saver saver = make();
  step(saver, 3);
  EXPECT_EQ(complete(), std::vector<std::string>{"step-00000008"});
  store.stays = "";
  step(saver, 4, true);
  EXPECT_EQ(complete(), std::vector<std::string>{tag_of_step(4)});
  ASSERT_EQ(log.warnings.size(), 2u);
  EXPECT_NE(log.warnings[0].find("step-00000008 cannot be removed"), std::string::npos) << log.warnings[0];
}

TEST_F(SaverTest, a_folder_that_cannot_be_listed_after_a_save_is_reported) {
  add_policy({1});
  store.unlisted = "the disk is away";
  Saver saver = make();
  step(saver, 1);
  EXPECT_EQ(saver.last_tag(), tag_of_step(1));
  ASSERT_EQ(log.warnings.size(), 1u);
  EXPECT_NE(log.warnings[0].find("the disk is away"), std::string::npos) << log.warnings[0];
}

TEST_F(SaverTest, state_that_is_visited_twice_is_an_error) {
  add_policy({1});
  visit = [this](StateVisitor& v) { v.integer("count", count), v.integer("count", count); };
  Saver saver = make();
  try {
    step(saver, 1);
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::plugin);
    EXPECT_NE(std::string(e.what()).find("count is visited twice"), std::string::npos) << e.what();
  }
}

TEST_F(SaverTest, every_policy_is_asked_after_every_step_whoever_wants_a_save) {
  const ToyPolicy &first = add_policy({1, 2, 3}), &second = add_policy({2});
  Saver saver = make();
  for (int64_t n = 1; n <= 4; ++n) step(saver, n, n == 4);
  for (const ToyPolicy* policy : {&first, &second}) {
    ASSERT_EQ(policy->asked.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(policy->asked[i].step, static_cast<int64_t>(i) + 1);
      EXPECT_EQ(policy->asked[i].last, i == 3);
      EXPECT_EQ(policy->asked[i].done, i == 3);
      EXPECT_EQ(policy->asked[i].figures.find("loss")->as_double(), static_cast<double>(i) + 1);
    }
  }
}

TEST_F(SaverTest, a_tag_stays_if_one_policy_keeps_it_or_it_is_the_newest) {
  const auto keeps_multiples_of = [](int64_t n) {
    return [n](const std::vector<StoredTag>& tags) {
      std::vector<bool> kept;
      for (const StoredTag& tag : tags) kept.push_back(tag.step % n == 0);
      return kept;
    };
  };
  add_policy({1, 2, 3, 4, 5, 6, 7}).which = keeps_multiples_of(2);
  add_policy().which = keeps_multiples_of(3);
  Saver saver = make();
  for (int64_t n = 1; n <= 5; ++n) step(saver, n);
  EXPECT_EQ(complete(), (std::vector<std::string>{tag_of_step(2), tag_of_step(3), tag_of_step(4), tag_of_step(5)}));
  step(saver, 6), step(saver, 7, true);
  EXPECT_EQ(complete(),
            (std::vector<std::string>{tag_of_step(2), tag_of_step(3), tag_of_step(4), tag_of_step(6), tag_of_step(7)}));
  EXPECT_EQ(saver.last_tag(), tag_of_step(7));
}

// A run whose folder was moved away while it was at work has gone on saving under the old name.
TEST_F(SaverTest, checkpoints_of_another_run_are_neither_counted_nor_removed) {
  for (const char* const tag : {"step-00000002", "step-00000900"})
    store.complete[tag].facts = parse_json(R"({"figures": {}, "run_id": "another"})", "test");
  store.complete["step-00000001"].facts = parse_json(R"({"figures": {}})", "of a version that does not say");
  std::vector<std::string> shown;
  add_policy({3, 4}).which = [&](const std::vector<StoredTag>& tags) {
    shown.clear();
    for (const StoredTag& tag : tags) shown.push_back(tag.tag);
    return std::vector<bool>(tags.size(), false);
  };
  Saver saver = make();
  step(saver, 3), step(saver, 4, true);
  EXPECT_EQ(shown, (std::vector<std::string>{tag_of_step(4), tag_of_step(3)}));
  EXPECT_EQ(complete(), (std::vector<std::string>{"step-00000002", tag_of_step(4), "step-00000900"}));
  ASSERT_EQ(log.warnings.size(), 2u) << "once for each";
  EXPECT_NE(log.warnings[0].find("of another run"), std::string::npos) << log.warnings[0];
}

TEST_F(SaverTest, nothing_is_written_or_removed_where_the_place_is_another_one) {
  store.complete["step-00000001"].facts = parse_json(R"({"figures": {}})", "test");
  add_policy({2, 3});
  bool moved = false;
  check_place = [&] {
    if (moved) throw fail(ErrorCode::io, "the folder was moved");
  };
  Saver saver = make();
  step(saver, 2);
  EXPECT_EQ(complete(), std::vector<std::string>{tag_of_step(2)});
  moved = true;
  EXPECT_THROW(step(saver, 3), Error);
  EXPECT_EQ(complete(), std::vector<std::string>{tag_of_step(2)});
}

TEST_F(SaverTest, policies_are_told_apart_in_what_is_due) {
  add_policy({1, 3}), add_policy({2, 3});
  Saver saver = make();
  std::vector<uint64_t> due;
  for (int64_t n = 1; n <= 4; ++n) {
    StepResult result;
    result.step = n;
    due.push_back(saver.due(result, one_figure("loss", 1), false));
  }
  EXPECT_EQ(due, (std::vector<uint64_t>{1, 2, 3, 0}));
  EXPECT_EQ(saver.policies_text(3), "checkpoint_policy/toy, checkpoint_policy/toy");
}

TEST_F(SaverTest, a_save_that_does_not_end_is_waited_for_as_long_as_is_asked) {
  store.gate = std::make_unique<std::promise<void>>();
  add_policy({1});
  Saver saver = make();
  EXPECT_EQ(saver.being_written(), "");
  step(saver, 1);
  EXPECT_EQ(saver.being_written(), tag_of_step(1));
  EXPECT_FALSE(saver.wait_until_written(0));
  store.gate->set_value();
  EXPECT_TRUE(saver.wait_until_written(test::deadline_s()));
  EXPECT_EQ(saver.being_written(), "");
}

TEST_F(SaverTest, answers_for_another_number_of_tags_are_the_policys_error) {
  add_policy({1}).which = [](const auto&) { return std::vector<bool>{true, false}; };
  Saver saver = make();
  try {
    step(saver, 1);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::plugin);
    EXPECT_NE(std::string(e.what()).find("checkpoint_policy/toy"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("2 answers for 1 tags"), std::string::npos) << e.what();
  }
}

TEST_F(SaverTest, a_checkpoint_has_the_state_the_figures_and_the_facts_of_its_step) {
  add_policy({2});
  Saver saver = make();
  step(saver, 1);
  weight.fill_(2), count = 6;
  step(saver, 2, true);
  const MemoryStore::Saved& saved = store.complete.at(tag_of_step(2));
  EXPECT_TRUE(at::equal(saved.tensors.at("weight"), at::full({2, 3}, 2.0f)));
  EXPECT_EQ(saved.facts.find("counters")->to_json(), R"({"count":6})");
  EXPECT_EQ(saved.facts.find("figures")->find("loss")->as_double(), 2);
  EXPECT_EQ(saved.facts.find("config")->as_string(), "of the run");
}

// Training goes on and changes the values before a byte is written.
TEST_F(SaverTest, an_asynchronous_save_has_the_values_of_its_step) {
  store.gate = std::make_unique<std::promise<void>>();
  add_policy({1});
  Saver saver = make();
  step(saver, 1);
  weight.fill_(9), count = 9;
  EXPECT_TRUE(store.complete.empty());
  store.gate->set_value();
  saver.finish();
  const MemoryStore::Saved& saved = store.complete.at(tag_of_step(1));
  EXPECT_TRUE(at::equal(saved.tensors.at("weight"), at::full({2, 3}, 1.0f)));
  EXPECT_EQ(saved.facts.find("counters")->find("count")->as_int(), 5);
}

TEST_F(SaverTest, a_failure_ends_the_run_or_is_reported_as_the_store_says) {
  add_policy({1, 2});
  Saver saver = make();
  store.fails = "no room left", store.ends_run = false;
  step(saver, 1);
  EXPECT_EQ(store.discarded, std::vector<std::string>{tag_of_step(1)});
  EXPECT_EQ(saver.last_tag(), "");
  ASSERT_EQ(log.warnings.size(), 1u);
  for (const std::string& part : {tag_of_step(1), std::string("no room left")})
    EXPECT_NE(log.warnings[0].find(part), std::string::npos) << log.warnings[0];
  store.ends_run = true;
  try {
    step(saver, 2);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
    EXPECT_NE(std::string(e.what()).find("no room left"), std::string::npos) << e.what();
  }
  EXPECT_TRUE(store.complete.empty());
}

TEST_F(SaverTest, state_with_other_parts_than_before_is_the_plugins_error) {
  add_policy({1, 2});
  at::Tensor more = at::full({4}, 1.0f);
  bool both = false;
  visit = [&](StateVisitor& v) {
    v.tensor("weight", weight, Layout::whole({2, 3}));
    if (both) v.tensor("more", more, Layout::whole({4}));
  };
  Saver saver = make();
  step(saver, 1);
  both = true;
  try {
    step(saver, 2);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::plugin);
    EXPECT_NE(std::string(e.what()).find("other parts"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace drivetrain::test
