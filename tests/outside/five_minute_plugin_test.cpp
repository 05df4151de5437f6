// The plugin of the README: its text is the files of examples/, and what they build does what the README says.
#include <gtest/gtest.h>

#include "support/run_program.h"

namespace drivetrain::test {
namespace {

constexpr const char* kConfig = R"({
  "train_steps": 6, "train_batch_size": 4, "save_final": false, "threads": 1,
  "model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "vocab_size": 64,
            "max_position_embeddings": 16}},
  "dataset": {"type": "synthetic", "params": {"seq_length": 16}},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}
})";

TEST(FiveMinutePlugin, the_readme_shows_the_files) {
  const std::string source = DRIVETRAIN_SOURCE_DIR, example = source + "/examples/five_minute_plugin/";
  const std::string readme = file_bytes(source + "/README.md");
  for (const char* file : {"CMakeLists.txt", "halving.cpp"}) {
    const std::string text = file_bytes(example + file);
    ASSERT_FALSE(text.empty()) << file;
    EXPECT_NE(readme.find("\n" + text + "```"), std::string::npos) << "README.md does not show " << file << " as it is";
  }
}

TEST(FiveMinutePlugin, is_built_with_optimisation_and_LibTorchs_threads_without_being_told) {
  const std::string folder = DRIVETRAIN_BUILD_DIR "/outside/five_minute_plugin";
  EXPECT_NE(file_bytes(folder + "/CMakeCache.txt").find("CMAKE_BUILD_TYPE:STRING=Release\n"), std::string::npos);
  const std::string rules = file_bytes(folder + "/build.ninja");
  for (const char* flag : {"-O3", "-DNDEBUG", "-fopenmp"}) EXPECT_NE(rules.find(flag), std::string::npos) << flag;
}

TEST(FiveMinutePlugin, it_halves_the_rate) {
  const TempFolder temporary;
  const std::string config = temporary / "my.json", run = temporary / "run";
  std::ofstream(config) << kConfig;
  const std::string build = DRIVETRAIN_BUILD_DIR;
  const Ran ran = run_shell(build + "/stage/bin/drivetrain launch -n 2 " + config + " --plugin-path " + build +
                            "/outside/five_minute_plugin/lib/drivetrain/plugins --set scheduler.type=halving" +
                            " --set scheduler.every=2 --set output_dir=" + run);
  ASSERT_EQ(ran.code, 0) << ran.output;
  std::vector<double> rates;
  for (const Value& line : read_metrics(run)) rates.push_back(line.find("lr")->as_double());
  EXPECT_EQ(rates, (std::vector<double>{1e-3, 1e-3, 5e-4, 5e-4, 2.5e-4, 2.5e-4}));
}

}  // namespace
}  // namespace drivetrain::test
