// From claims to a mesh: order, what the rest is, and what is said where sizes do not explain the world.
#include <gtest/gtest.h>

#include <drivetrain/plan_record.h>

#include "plan/mesh_plan.h"

namespace drivetrain::test {
namespace {

struct Claimed {
  std::string by, axis;
  int64_t size = 0;
  int place = 0;
};
const Claimed kTensor{"tensor_parallel/cutter", "tp", 2, PlanRecord::kTensorPlace};
const Claimed kRing{"context_parallel/circle", "cp", 2, PlanRecord::kContextPlace};
const Claimed kStages{"schedule/stages", "pp", 2, PlanRecord::kStagePlace};
const Claimed kData{"data_parallel/whole", "dp", PlanRecord::kRest, PlanRecord::kDataPlace};

Claimed sized(Claimed claim, int64_t size) {
  claim.size = size;
  return claim;
}

PlanRecord context_of(int64_t world, const std::vector<Claimed>& claims) {
  RunFacts run;
  run.world_size = world;
  PlanRecord context({}, run);
  for (const Claimed& c : claims) {
    context.set_plugin(c.by);
    const bool same = c.axis == "tp" || c.axis == "pp", positions = c.axis == "cp" || c.axis == "sp";
    context.claim_axis(c.axis, c.size,
                       same        ? PlanContext::Reads::same
                       : positions ? PlanContext::Reads::other_positions
                                   : PlanContext::Reads::other_rows,
                       c.place);
  }
  return context;
}

// Every plugin was chosen in a line of its own, in the order of their kinds' names.
Position place(const std::string& id) {
  const std::vector<std::string> kinds = {"context_parallel", "data_parallel", "schedule", "tensor_parallel"};
  for (size_t i = 0; i < kinds.size(); ++i)
    if (id.rfind(kinds[i], 0) == 0) return {"a.json", static_cast<int>(i) + 1, 3};
  return id == "mesh_order" ? Position{"a.json", 9, 3} : Position{};
}

struct Solved {
  Solved(const PlanRecord& context, const std::vector<std::string>& order = {}, const PluginsThatOffer& who = {},
         const ChosenOf& chosen = {})
      : plan(solve_mesh(context, order, place, problems, who, chosen)) {}
  Solved(int64_t world, const std::vector<Claimed>& claims, const std::vector<std::string>& order = {})
      : Solved(context_of(world, claims), order) {}
  std::string text() const {
    std::string all;
    for (const Problem& p : problems.list()) all += p.where.text() + " " + p.message + "\n";
    return all;
  }
  Problems problems;
  MeshPlan plan;
};

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  size_t at = 0;
  for (const std::string& part : parts) {
    at = text.find(part, at);
    ASSERT_NE(at, std::string::npos) << "wanted: " << part << "\nin:\n" << text;
  }
}

TEST(MeshOfClaims, is_sorted_by_place_and_the_rest_is_what_the_sizes_leave) {
  const Solved mesh(16, {kStages, kData, kRing, kTensor});
  EXPECT_EQ(mesh.text(), "");
  EXPECT_EQ(mesh.plan.text(), "tp 2 x cp 2 x dp 2 x pp 2");
  EXPECT_EQ(mesh.plan.batch_axes, std::vector<std::string>{"dp"});
  EXPECT_EQ(mesh.plan.batch_ranks(), 2);
  EXPECT_TRUE(mesh.plan.axes[1].joins_gradients);
  EXPECT_FALSE(mesh.plan.axes[3].joins_gradients);
}

TEST(MeshOfClaims, takes_the_axes_of_mesh_order_first_and_the_others_by_place) {
  EXPECT_EQ(Solved(16, {kStages, kData, kRing, kTensor}, {"pp", "dp"}).plan.text(), "pp 2 x dp 2 x tp 2 x cp 2");
  EXPECT_EQ(Solved(8, {kStages, kData, kTensor}, {"dp", "pp", "tp"}).plan.text(), "dp 2 x pp 2 x tp 2");
}

TEST(MeshOfClaims, refuses_names_in_mesh_order_that_nobody_claims_or_that_stand_twice) {
  expect_parts(Solved(4, {kTensor, kData}, {"dp", "pp"}).text(),
               {"a.json:9:3 mesh_order names the axis pp", "no chosen plugin claims", "claimed are tp, dp"});
  expect_parts(Solved(4, {kTensor, kData}, {"dp", "dp"}).text(), {"a.json:9:3", "names the axis dp twice"});
  expect_parts(Solved(1, {}, {"dp"}).text(), {"there are none"});
}

// Whoever claims it: expert parallelism is a strategy's.
TEST(MeshOfClaims, divides_the_batch_over_every_axis_that_reads_other_rows) {
  const Claimed experts{"strategy/experts", "ep", 2, PlanRecord::kDataPlace - 5};
  const std::vector<Claimed> claims = {kStages, kData, kRing, experts};
  const Solved mesh(16, claims);
  EXPECT_EQ(mesh.text(), "");
  EXPECT_EQ(mesh.plan.text(), "cp 2 x ep 2 x dp 2 x pp 2");
  EXPECT_EQ(mesh.plan.batch_axes, (std::vector<std::string>{"ep", "dp"}));
  EXPECT_EQ(mesh.plan.batch_ranks(), 4);
  EXPECT_TRUE(mesh.plan.axes[1].joins_gradients);
  RunFacts run;
  run.world_size = 16;
  count_ranks(context_of(16, claims), run);
  EXPECT_EQ(run.rest_ranks, 2);
  EXPECT_EQ(run.joined_ranks, 4);
  EXPECT_EQ(run.position_ranks, 2);
}

TEST(MeshOfClaims, without_any_is_one_rank) {
  const Solved mesh(1, {});
  EXPECT_EQ(mesh.text(), "");
  EXPECT_EQ(mesh.plan.text(), "one rank");
  expect_parts(Solved(3, {}).text(), {"no plugin has a use for 3 ranks", "start 1 rank", "data_parallel"});
}

TEST(RanksForDataParallelism, are_what_other_plugins_leave_with_the_parts_of_sequences_told_apart) {
  RunFacts run;
  run.world_size = 24;
  const Claimed group = sized(kData, 3), one{"context_parallel/other", "sp", 1, PlanRecord::kHeadsPlace};
  EXPECT_EQ(count_ranks(context_of(24, {kStages, group, kRing, one, kTensor}), run), 8);
  EXPECT_EQ(run.rest_ranks, 3);
  EXPECT_EQ(run.joined_ranks, 2);
  EXPECT_EQ(run.position_ranks, 2);
  EXPECT_EQ(run.taken_ranks.value(), "pp 2 x cp 2 x tp 2");
  run.world_size = 9;
  EXPECT_EQ(count_ranks(context_of(9, {kTensor, kData}), run), 2);
  EXPECT_EQ(run.rest_ranks, 9);
}

TEST(WorldThatIsNotExplained, gets_every_reading_where_one_takes_the_rest) {
  const Solved mesh(12, {sized(kTensor, 4), kStages, kData});
  expect_parts(mesh.text(),
               {"tp 4 x pp 2 = 8 does not divide the world of 12 ranks",
                "tp is 4 (tensor_parallel/cutter, a.json:4:3): with the others as they are it could be 1, 2, 3, 6",
                "dp takes the rest (data_parallel/whole, a.json:2:3)",
                "pp is 2 (schedule/stages, a.json:3:3): with the others as they are it could be 1, 3",
                "start a multiple of 8 ranks (launch -n 8 or 16)"});
}

TEST(WorldThatIsNotExplained, gets_every_reading_where_nobody_takes_the_rest) {
  const Solved mesh(6, {kTensor, kStages});
  expect_parts(mesh.text(),
               {"tp 2 x pp 2 = 4 is not the world of 6 ranks, and nobody takes the rest",
                "tp is 2 (tensor_parallel/cutter, a.json:4:3): with the others as they are it would have to be 3",
                "pp is 2 (schedule/stages, a.json:3:3): with the others as they are it would have to be 3",
                "start 4 ranks, or choose a data_parallel plugin"});
  expect_parts(Solved(5, {kTensor, kStages}).text(), {"tp is 2", "no size fits beside the others' 2"});
}

TEST(WorldThatIsNotExplained, is_one_line_of_the_config_where_one_axis_is_to_blame) {
  expect_parts(Solved(3, {kTensor, kData}).text(),
               {"a.json:4:3 tp 2 does not divide the world of 3 ranks", "it could be 1, 3", "launch -n 2 or 4"});
  expect_parts(Solved(2, {sized(kTensor, 4), kData}).text(), {"it could be 1, 2", "launch -n 4"});
}

TEST(ClaimsThatConflict, name_both_parties_and_where_they_were_chosen) {
  Claimed second = kTensor;
  second.by = "context_parallel/other";
  expect_parts(Solved(4, {kTensor, second, kData}).text(),
               {"a.json:1:3 axis tp of the mesh is claimed by tensor_parallel/cutter (a.json:4:3) and by "
                "context_parallel/other (a.json:1:3)",
                "use one of them"});
  Claimed rest = kStages;
  rest.size = PlanRecord::kRest;
  expect_parts(Solved(4, {kData, rest}).text(),
               {"data_parallel/whole (a.json:2:3) and schedule/stages (a.json:3:3) both take the rest of the world"});
}

TEST(NeedsThatNobodyMeets, name_who_of_the_installed_ones_would) {
  PlanRecord context = context_of(1, {});
  context.set_plugin("context_parallel/circle");
  context.need("attention.returns_lse", "parts are merged by it");
  expect_parts(Solved(context).text(), {"a.json:1:3 context_parallel/circle: needs attention.returns_lse "
                                        "(parts are merged by it), which no chosen plugin offers"});
  const auto who = [](const std::string& ability) {
    EXPECT_EQ(ability, "attention.returns_lse");
    return std::vector<std::string>{"attention/one", "attention/two"};
  };
  expect_parts(Solved(context, {}, who).text(), {"offers; of the installed ones, attention/one and attention/two do"});
  expect_parts(Solved(context, {}, who, [](const std::string& kind) { return kind + "/plain"; }).text(),
               {"which attention/plain does not offer; of the installed ones"});
  context.set_plugin("attention/one");
  context.offer("attention.returns_lse");
  EXPECT_EQ(Solved(context, {}, who).text(), "");
}

}  // namespace
}  // namespace drivetrain::test
