// A data-parallel strategy of a new kind, written outside the tree on the toolkit: its gathers are its own, and losses,
// norms and weights are those of ZeRO stage 3, bit for bit.
#include <gtest/gtest.h>

#include "golden/golden_config.h"
#include "support/run_program.h"

namespace drivetrain::test {
namespace {

struct RunFiles {
  std::vector<Value> metrics;
  std::string weights, resolved, output;
};

RunFiles run_installed(const TempFolder& temporary, const std::string& name, Value config, bool share = false) {
  if (!share) config.set("communicator", parse_json(R"({"type": "local", "params": {"share": false}})", "test"));
  const std::string file = temporary.path() + "/" + name + ".json", folder = temporary.path() + "/" + name;
  std::ofstream(file) << config.to_json(2);
  const Ran ran = run_shell(std::string("DRIVETRAIN_PLUGIN_PATH=") + DRIVETRAIN_BUILD_DIR +
                            "/outside/out_of_tree_sharding/lib/drivetrain/plugins " + DRIVETRAIN_BUILD_DIR +
                            "/stage/bin/drivetrain launch -n 4 " + file + " --set output_dir=" + folder);
  EXPECT_EQ(ran.code, 0) << ran.output;
  return {read_metrics(folder), file_bytes(folder + "/final/model.safetensors"), file_bytes(folder + "/resolved.json"),
          ran.output};
}

TEST(Hierarchical, gathers_in_two_steps_give_the_bits_of_zero_3) {
  const TempFolder temporary;
  Value config = golden_config("gpt2_tiny", 4, "matrices");
  config.set("zero_optimization",
             parse_json(R"({"stage": 3, "stage3_param_persistence_threshold": 0, "reduce_bucket_size": 1e9})", "test"));
  const RunFiles zero = run_installed(temporary, "zero", config);
  config.erase("zero_optimization");
  config.set("data_parallel", parse_json(R"({"type": "hierarchical", "params": {"host_ranks": 2}})", "test"));
  const RunFiles ours = run_installed(temporary, "hierarchical", config);

  EXPECT_NE(ours.resolved.find("data_parallel/hierarchical"), std::string::npos) << "the strategy was not used";
  ASSERT_EQ(zero.metrics.size(), ours.metrics.size());
  for (size_t i = 0; i < zero.metrics.size(); ++i)
    for (const char* key : {"loss", "grad_norm"})
      EXPECT_EQ(zero.metrics[i].find(key)->as_double(), ours.metrics[i].find(key)->as_double()) << key << ", " << i + 1;
  EXPECT_FALSE(zero.weights.empty());
  EXPECT_TRUE(zero.weights == ours.weights) << "final weights differ";

  // Where values live once for all ranks of the host nothing is gathered, and an author has to know that.
  const char* const never = "gathers of its own, which are never called";
  EXPECT_EQ(ours.output.find(never), std::string::npos) << ours.output;
  const RunFiles shared = run_installed(temporary, "shared", config, true);
  EXPECT_NE(shared.output.find(never), std::string::npos) << shared.output;
}

TEST(Hierarchical, passes_the_conformance_suite_of_its_kind) {
  const Ran ran = run_shell("ctest --test-dir " DRIVETRAIN_BUILD_DIR
                            "/outside/out_of_tree_sharding --no-tests=error --output-on-failure");
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_NE(ran.output.find("conformance.data_parallel.hierarchical"), std::string::npos) << ran.output;
}

}  // namespace
}  // namespace drivetrain::test
