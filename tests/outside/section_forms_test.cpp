// A section that only an outside plugin's manifest knows is read in all its forms by the installed program.
#include <gtest/gtest.h>

#include <drivetrain/error.h>

#include "support/run_program.h"

namespace drivetrain::test {
namespace {

// Notes may stand around the object.
std::string from_first_brace(const std::string& output) {
  const size_t begin = output.find("{\n"), end = output.rfind("\n}");
  return begin == std::string::npos || end == std::string::npos ? "{}" : output.substr(begin, end + 2 - begin);
}

class OutsideSection : public testing::Test {
 protected:
  Ran run(const std::string& command, const std::string& section) {
    const std::string config = temporary_ / "my.json", build = DRIVETRAIN_BUILD_DIR;
    std::ofstream(config) << R"({"train_steps": 6, "train_batch_size": 2, "save_final": false, "threads": 1,
      "model": {"type": "gpt", "params": {"num_layers": 1, "hidden_size": 16, "num_attention_heads": 2,
                "vocab_size": 64, "max_position_embeddings": 8}},
      "dataset": {"type": "synthetic", "params": {"seq_length": 8}}, "optimizer": {"lr": 1e-3},
      )" << section << "}";
    return run_shell("DRIVETRAIN_PLUGIN_PATH=" + build + "/outside/section_forms/lib/drivetrain/plugins " + build +
                     "/stage/bin/drivetrain " + command + " " + config);
  }

  // The plugin's options in the resolved configuration; "" where the plugin is not in the run.
  std::string options(const std::string& section) {
    const Ran ran = run("config resolve", section);
    EXPECT_EQ(ran.code, 0) << section << "\n" << ran.output;
    const Value config = parse_json(from_first_brace(ran.output), "resolved");
    for (const Value& monitor : config.find("monitors")->items())
      if (monitor.find("type")->as_string() == "pulse" && !monitor.find("enabled")) {
        const Value& params = *monitor.find("params");
        return concat(params.find("every")->as_int(), " ", params.find("mark")->as_string());
      }
    return "";
  }

  const TempFolder temporary_;
};

TEST_F(OutsideSection, every_form_of_the_manifest_is_understood) {
  EXPECT_EQ(options(R"("pulse": 4)"), "4 beat");
  EXPECT_EQ(options(R"("heartbeat": 4)"), "4 beat");
  EXPECT_EQ(options(R"("pulse": true)"), "2 tick");
  EXPECT_EQ(options(R"("pulse": {"mark": "tock"})"), "1 tock");
  for (const char* off : {R"("pulse": 0)", R"("pulse": {"stage": 0})", R"("pulse": false)", R"("_": 0)"})
    EXPECT_EQ(options(off), "") << off;
}

TEST_F(OutsideSection, inspect_tells_the_forms) {
  const Ran ran = run("inspect monitor/pulse #", "\"_\": 0");
  EXPECT_EQ(ran.code, 0);
  for (const char* part : {"\"pulse\"", "\"heartbeat\"", "a number is its \"every\"", "\"mark\":\"tick\"", "off at"})
    EXPECT_NE(ran.output.find(part), std::string::npos) << part << " in\n" << ran.output;
}

TEST_F(OutsideSection, it_runs) {
  const std::string marks = temporary_ / "marks.txt";
  const Ran ran =
      run("train --set pulse.file=" + marks + " --set output_dir=" + (temporary_ / "run"), R"("pulse": {"every": 3})");
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_EQ(file_bytes(marks), "beat\nbeat\n");
}

}  // namespace
}  // namespace drivetrain::test
