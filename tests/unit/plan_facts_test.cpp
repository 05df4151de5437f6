// Facts of a plan: known or an error, divided from the outside in, and the same words in the last two rounds.
#include <gtest/gtest.h>

#include <drivetrain/error.h>
#include <drivetrain/plan_record.h>

#include "plan/mesh_plan.h"

namespace drivetrain::test {
namespace {

template <class Run>
std::string error_of(const Run& run) {
  try {
    run();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::plugin);
    return e.what();
  }
  return "";
}

void expect_has(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\nin: " << text;
}

TEST(Facts, that_are_not_known_yet_cannot_be_read_and_say_when_they_will_be) {
  const RunFacts run;
  EXPECT_FALSE(run.seq_length.known());
  expect_has(error_of([&] { return static_cast<double>(run.seq_length); }), {"seq_length", "third round", "known()"});
  expect_has(error_of([&] { return run.rest_ranks * 2; }), {"rest_ranks", "second round"});
  expect_has(error_of([&] { return run.rank_layers.value(); }), {"rank_layers", "last round"});
  const ModelFacts model;
  expect_has(error_of([&] { return model.num_attention_heads + 0; }), {"num_attention_heads", "the model"});
  EXPECT_EQ(run.seq_length.value_or(7), 7);
}

TEST(Facts, that_are_known_are_values) {
  RunFacts run;
  run.seq_length = 64;
  EXPECT_TRUE(run.seq_length.known());
  EXPECT_EQ(run.seq_length * 2, 128);
  const RunFacts copy = run;
  run.seq_length.forget();
  EXPECT_FALSE(run.seq_length.known());
  EXPECT_EQ(copy.seq_length.value(), 64);
}

ModelFacts with_heads(int64_t heads, int64_t groups) {
  ModelFacts model;
  model.num_attention_heads = heads, model.num_query_groups = groups;
  return model;
}

TEST(Facts, heads_of_a_rank_follow_from_what_plugins_share) {
  PlanRecord first(with_heads(24, 8), {});
  first.set_plugin("tensor_parallel/any"), first.split_layers(2);
  RunFacts run;
  count_ranks(first, run);
  EXPECT_EQ(run.tensor_ranks, 2);
  EXPECT_EQ(run.heads_per_rank, 12);
  EXPECT_EQ(run.groups_per_rank, 4);

  PlanRecord second(with_heads(24, 8), run);
  second.set_plugin("context_parallel/outer");
  EXPECT_EQ(second.run().heads_per_rank, 12);
  second.split_attention_heads(8);
  EXPECT_EQ(second.run().heads_per_rank, 12) << "its own are not those that it leaves";
  second.set_plugin("context_parallel/inner");
  EXPECT_EQ(second.run().heads_per_rank, 1);
  EXPECT_EQ(second.run().groups_per_rank, 1);
}

TEST(Facts, a_model_without_heads_has_none_to_share) {
  PlanRecord context({}, {});
  context.set_plugin("tensor_parallel/any"), context.split_layers(2);
  RunFacts run;
  count_ranks(context, run);
  EXPECT_EQ(run.tensor_ranks, 2);
  EXPECT_FALSE(run.heads_per_rank.known());
}

// What is said of the need of the second plugin, listed before or behind the first.
std::string problem_of(bool behind) {
  PlanRecord context({}, {});
  const auto takes = [&] {
    context.set_plugin("context_parallel/blocks");
    context.take_away(PlanContext::kWholePositions, "it sees blocks");
  };
  const auto needs = [&] {
    context.set_plugin("context_parallel/heads");
    context.need(PlanContext::kWholePositions, "it attends to all");
  };
  behind ? (takes(), needs()) : (needs(), takes());
  Problems problems;
  solve_mesh(
      context, {}, [](const std::string&) { return Position{}; }, problems);
  try {
    problems.throw_if_any();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Abilities, that_one_plugin_takes_away_are_there_for_those_before_it) {
  EXPECT_EQ(problem_of(false), "");
  expect_has(problem_of(true),
             {"context_parallel/heads: needs attention.whole_positions (it attends to all)", "context_parallel/blocks",
              "it sees blocks", "list context_parallel/heads before context_parallel/blocks"});
}

TEST(LastRounds, must_say_the_same) {
  const auto said = [](const auto& speak) {
    PlanRecord context({}, {});
    context.set_plugin("strategy/fickle");
    speak(context);
    return context;
  };
  const PlanRecord nothing = said([](PlanRecord&) {});
  const PlanRecord claims = said([](PlanRecord& c) { c.claim_axis("x", 2, PlanContext::Reads::other_rows, 5); });
  const PlanRecord larger = said([](PlanRecord& c) { c.claim_axis("x", 4, PlanContext::Reads::other_rows, 5); });
  const PlanRecord offers = said([](PlanRecord& c) { c.offer("fickle.wind"); });
  const PlanRecord needs = said([](PlanRecord& c) { c.need("fickle.wind", "it sails"); });
  const PlanRecord figures = said([](PlanRecord& c) { c.memory(MemoryClass::buffers, "b", 1), c.cost("dear"); });
  const auto error = [](const PlanRecord& a, const PlanRecord& b) {
    return error_of([&] { check_same_declarations(a, b); });
  };
  EXPECT_EQ(error(claims, claims), "");
  EXPECT_EQ(error(nothing, figures), "") << "figures may be known later";
  expect_has(error(nothing, claims), {"strategy/fickle", "claims the axis x with size 2", "in the last round only"});
  expect_has(error(claims, larger), {"strategy/fickle", "claims the axis x with size 4"});
  expect_has(error(offers, nothing), {"strategy/fickle", "offers fickle.wind", "before the last"});
  expect_has(error(nothing, needs), {"strategy/fickle", "needs fickle.wind"});
}

}  // namespace
}  // namespace drivetrain::test
