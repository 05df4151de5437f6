// Which cells end badly by their own plan.
#include <gtest/gtest.h>

#include <cstdlib>

#include <drivetrain/error.h>

#include "study/limits.h"

namespace drivetrain::study {
namespace {

struct Planned {
  StudyFile study;
  std::vector<Cell> cells;
  std::vector<CellPlan> plans;

  void add(const std::string& id, double bytes, double step_s) {
    Cell cell;
    cell.id = id;
    cells.push_back(cell);
    CellPlan plan;
    plan.plan = parse_json(
        concat(R"({"memory": {"on_device": {"bytes": )", bytes, R"(}}, "run": {"train_steps": 100}})"), "plan");
    plan.resolved = parse_json(R"({"device": "cpu"})", "config");
    plan.step_s = step_s;
    plans.push_back(plan);
  }
  std::vector<std::string> lines() const { return expected_failures(study, cells, plans, {1e9, 0}); }
};

TEST(Limits, name_the_cells_that_exceed_them_and_no_others) {
  Planned planned;
  planned.study.timeout_s = 60, planned.study.repeats.most = 3;
  planned.add("fits", 1e8, 0.5);
  EXPECT_TRUE(planned.lines().empty());
  planned.add("slow", 1e8, 0.7);
  planned.add("large", 6e8, 0.1);
  ASSERT_EQ(planned.lines().size(), 1u);
  EXPECT_NE(
      planned.lines()[0].find(
          "slow will not end in time by its plan: its steps alone are planned to take 70 s, \"timeout_s\" is 60 s"),
      std::string::npos);
  planned.plans.back().world_size = 2;
  ASSERT_EQ(planned.lines().size(), 2u);
  EXPECT_NE(planned.lines()[1].find("large will be out of memory by its plan: 1.2 GB"), std::string::npos);
  planned.plans.back().hosts = "hosts";
  EXPECT_EQ(planned.lines().size(), 1u) << "this host's memory is nothing to ranks elsewhere";
  planned.study.memory_limit = 500'000'000;
  EXPECT_EQ(planned.lines().size(), 2u);
  planned.plans.back().refusal = "no";
  EXPECT_EQ(planned.lines().size(), 1u);
  const ExpectedEnd slow = expected_end(planned.study, planned.plans[1], {1e9, 0});
  EXPECT_TRUE(slow.too_large.empty());
  EXPECT_FALSE(slow.too_slow.empty());
  planned.study.budget_s = 100;
  ASSERT_EQ(planned.lines().size(), 2u);
  EXPECT_NE(planned.lines()[1].find("take 360 s"), std::string::npos) << planned.lines()[1];
}

TEST(Limits, an_outcome_beyond_the_last_step_is_told_before_any_run) {
  Planned planned;
  planned.study.path = "study.json", planned.study.timeout_s = 60, planned.study.seed_per_repeat = true;
  planned.add("reference", 1e8, 0), planned.add("short", 1e8, 0);
  const std::string batch = R"({"batch": {"train_batch_size": 4}, "data": {"seq_length": 16}, "run": {"train_steps": )";
  planned.plans[0].plan = parse_json(batch + "100}}", "plan"),
  planned.plans[1].plan = parse_json(batch + "50}}", "plan");
  const auto refusal = [&](const std::string& outcome) -> std::string {
    planned.study.outcomes = outcomes_of(parse_json(outcome, "outcome"));
    try {
      check_reach(planned.study, planned.plans);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::config);
      return e.what();
    }
    return "";
  };
  for (const char* within :
       {R"("loss")", R"({"metric": "loss", "at": {"step": 100}})", R"({"metric": "loss", "at": {"tokens": 6400}})",
        R"({"metric": "loss", "at": "equal_tokens"})"})
    EXPECT_EQ(refusal(within), "");
  EXPECT_NE(refusal(R"({"metric": "loss", "at": {"step": 101}})").find("its run has 100 steps"), std::string::npos);
  EXPECT_NE(refusal(R"(["loss", {"metric": "loss", "at": {"tokens": 6401}}])").find("has 6400 tokens at most"),
            std::string::npos);
  refusal(R"({"metric": "loss", "at": {"step": 51}})");
  ASSERT_EQ(planned.lines().size(), 1u);
  EXPECT_NE(planned.lines()[0].find("short will not have an outcome by its plan"), std::string::npos);
  EXPECT_NE(planned.lines()[0].find("its run has 50 steps"), std::string::npos);
  refusal(R"("valid_loss")");
  EXPECT_TRUE(planned.lines().empty());
  planned.study.seed_per_repeat = false;
  EXPECT_NE(advice_on_seeds(planned.study).find("\"seed_per_repeat\": true"), std::string::npos);
  refusal(R"({"metric": "tokens_per_s"})");
  EXPECT_EQ(advice_on_seeds(planned.study), "") << "speeds differ from repeat to repeat";
}

// No GPU is needed to find out what the driver's library says of one.
TEST(Limits, a_rank_on_a_gpu_has_that_gpus_memory) {
  unsetenv("CUDA_VISIBLE_DEVICES");
  const HostMemory here = memory_here(NVML_STAND_IN);
  EXPECT_EQ(here.gpu, 42e9) << "the smaller one of those that may be seen";
  EXPECT_GT(here.host, 0);
  setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  EXPECT_EQ(memory_here(NVML_STAND_IN).gpu, 80e9) << "of the one that runs may use";
  setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
  EXPECT_EQ(memory_here(NVML_STAND_IN).gpu, 0);
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(memory_here("nowhere.so").gpu, 0);
  Planned planned;
  planned.study.timeout_s = 60;
  planned.add("cell", 61.7e9, 0);
  planned.plans[0].resolved = parse_json(R"({"device": "cuda"})", "config");
  const auto told = [&](const HostMemory& memory) { return expected_end(planned.study, planned.plans[0], memory); };
  EXPECT_EQ(told(here).too_large, "61.7 GB a rank are planned, a GPU here has 42 GB");
  EXPECT_EQ(told({1e9, 80e9}).too_large, "") << "the host's memory is nothing to it";
  EXPECT_EQ(told({1e9, 0}).too_large, "");
  planned.plans[0].hosts = "hosts";
  EXPECT_EQ(told(here).too_large, "") << "it runs elsewhere";
}

}  // namespace
}  // namespace drivetrain::study
