// The hooks carry more than one strategy: under a plugin built outside the tree that frees and poisons every unit's
// parameters outside their spans and sums gradients in its own way, the golden runs keep their bits.
#include <gtest/gtest.h>

#include "golden/golden_config.h"
#include "support/run_program.h"

namespace drivetrain::test {
namespace {

struct RunFiles {
  std::vector<Value> metrics;
  std::string weights, resolved;
};

RunFiles run_installed(const TempFolder& temporary, const std::string& name, Value config, int processes) {
  const std::string file = temporary.path() + "/" + name + ".json", folder = temporary.path() + "/" + name;
  std::ofstream(file) << config.to_json(2);
  const Ran ran =
      run_shell(std::string("DRIVETRAIN_PLUGIN_PATH=") + DRIVETRAIN_BUILD_DIR +
                "/outside/poison/lib/drivetrain/plugins " + DRIVETRAIN_BUILD_DIR + "/stage/bin/drivetrain launch -n " +
                std::to_string(processes) + " " + file + " --set output_dir=" + folder);
  EXPECT_EQ(ran.code, 0) << ran.output;
  return {read_metrics(folder), file_bytes(folder + "/final/model.safetensors"), file_bytes(folder + "/resolved.json")};
}

void expect_same_bits(const std::string& name, int processes) {
  const TempFolder temporary;
  Value config = golden_config(name, processes, "matrices");
  const RunFiles plain = run_installed(temporary, "plain", config, processes);
  config.set("data_parallel", "poison");
  const RunFiles poisoned = run_installed(temporary, "poisoned", config, processes);

  EXPECT_NE(poisoned.resolved.find("data_parallel/poison"), std::string::npos) << "the strategy was not used";
  ASSERT_EQ(plain.metrics.size(), 20u);
  ASSERT_EQ(poisoned.metrics.size(), 20u);
  for (size_t i = 0; i < 20; ++i)
    for (const char* key : {"loss", "grad_norm"})
      EXPECT_EQ(plain.metrics[i].find(key)->as_double(), poisoned.metrics[i].find(key)->as_double())
          << key << ", step " << i + 1;
  EXPECT_EQ(poisoned.metrics[19].find("poisoned_units")->as_double(), 4) << "a strategy's own figure";
  EXPECT_FALSE(plain.weights.empty());
  EXPECT_TRUE(plain.weights == poisoned.weights) << "final weights differ";
}

TEST(Poison, gpt2_tiny_keeps_its_bits_on_one_process) { expect_same_bits("gpt2_tiny", 1); }
TEST(Poison, gpt2_tiny_keeps_its_bits_on_two_processes) { expect_same_bits("gpt2_tiny", 2); }
TEST(Poison, llama_tiny_keeps_its_bits_on_one_process) { expect_same_bits("llama_tiny", 1); }
TEST(Poison, llama_tiny_keeps_its_bits_on_two_processes) { expect_same_bits("llama_tiny", 2); }

}  // namespace
}  // namespace drivetrain::test
