// The small runs of configs/ that cut the model or the sequence: a few steps each, on the curve of one process.
#include <cmath>

#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

struct Small {
  const char* name;
  int ranks;
  std::vector<const char*> alone;  // settings that take the cuts out
};

const Small kSmall[] = {
    {"tp2", 2, {"tensor_parallel=null"}},
    {"pp2", 2, {"pipeline.params.stages=1"}},
    {"cp2", 2, {"context_parallel=null"}},
    {"expert_parallel", 2, {"expert_parallel=null", "zero_optimization.stage=0"}},
    {"3d", 8, {"tensor_parallel=null", "pipeline.params.stages=1", "zero_optimization.stage=0"}},
};

class SmallRun : public ProgramTest, public testing::WithParamInterface<Small> {
 protected:
  std::vector<Value> steps(const std::string& start, const std::string& folder,
                           const std::vector<const char*>& sets) const {
    std::string words = start + " " + DRIVETRAIN_SOURCE_DIR "/configs/" + GetParam().name +
                        ".json --set train_steps=4 --set threads=1" + " --set output_dir=" + path(folder);
    for (const char* set : sets) words += std::string(" --set ") + set;
    const Ran ran = run(words);
    EXPECT_EQ(ran.code, 0) << ran.output;
    return read_metrics(path(folder));
  }
};

TEST_P(SmallRun, follows_the_curve_of_one_process) {
  const auto together = steps("launch -n " + std::to_string(GetParam().ranks), "together", {});
  const auto alone = steps("train", "alone", GetParam().alone);
  ASSERT_EQ(together.size(), 4u);
  ASSERT_EQ(alone.size(), 4u);
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_NEAR(together[i].find("loss")->as_double(), alone[i].find("loss")->as_double(), 1e-4) << "step " << i + 1;
    EXPECT_NEAR(together[i].find("grad_norm")->as_double(), alone[i].find("grad_norm")->as_double(),
                1e-3 * alone[i].find("grad_norm")->as_double())
        << "step " << i + 1;
    EXPECT_EQ(together[i].find("tokens")->as_int(), alone[i].find("tokens")->as_int());
  }
  EXPECT_EQ(final_weights("together").size(), final_weights("alone").size());
}

// The plan of a rank's memory is what is found, with a policy and without; long forms: tools/memory_plan.
class PlannedMemoryOfRuns : public ProgramTest {
 protected:
  Value measured(const std::string& policy) const {
    const Ran ran =
        run("train " DRIVETRAIN_SOURCE_DIR
            "/configs/tp2.json --set tensor_parallel=null --set model.num_layers=12 --set checkpoint_policy=false"
            " --set train_steps=2 --set save_final=false --set activation_checkpointing=" +
            policy + " --set output_dir=" + path(policy));
    EXPECT_EQ(ran.code, 0) << ran.output;
    return parse_json(file_bytes(path(policy + "/memory.json")), "memory.json").find("ranks")->items().at(0);
  }
};

TEST_F(PlannedMemoryOfRuns, is_what_is_found_and_less_where_blocks_run_again) {
  double kept[2] = {};
  for (const bool again : {false, true}) {
    const Value rank = measured(again ? "full" : "none"), &planned = *rank.find("planned");
    const double together = rank.find("together")->as_double();
    EXPECT_NEAR(planned.find("together")->as_double(), together, 0.03 * together);
    kept[again] = planned.find("activations")->as_double();
  }
  EXPECT_GT(kept[0], 3 * kept[1]);
}

INSTANTIATE_TEST_SUITE_P(Of, SmallRun, testing::ValuesIn(kSmall),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace drivetrain::test
