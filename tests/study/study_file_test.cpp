// Study files: what they may say, and one clear error with its place for what they may not.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <drivetrain/error.h>

#include "study/design.h"
#include "study/study_file.h"

namespace drivetrain::study {
namespace {

class StudyFileTest : public testing::Test {
 protected:
  StudyFileTest() {
    char name[] = "/tmp/drivetrain-study-XXXXXX";
    folder_ = mkdtemp(name);
    std::ofstream(folder_ + "/base.json") << "{}";
  }
  ~StudyFileTest() override { std::filesystem::remove_all(folder_); }
  StudyFile read(const std::string& text) const {
    std::ofstream(folder_ + "/study.json") << text;
    return read_study(folder_ + "/study.json");
  }
  void expect_refused(const std::string& text, const std::vector<std::string>& parts) const {
    try {
      read(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::config);
      for (const std::string& part : parts) EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  }

 private:
  std::string folder_;
};

TEST_F(StudyFileTest, reads_factors_groups_absent_levels_and_launch_keys) {
  const StudyFile study = read(R"({
    "base": "base.json",  // a comment
    "factors": {
      "zero_optimization.stage": [0, 1],
      "recompute": {"key": "activation_checkpointing", "levels": ["absent", "full"]},
      "shape": {"levels": {"small": {"model.hidden_size": 8}, "wide": {"model.hidden_size": 16, "world_size": 2}}},
    },
    "reference": {"shape": "wide"}, "warmup": {"rule": "steady", "window": 3}, "keep": "global_batch"
  })");
  ASSERT_EQ(study.factors.size(), 3u);
  EXPECT_FALSE(study.factors[1].levels[0].changes.front().value);
  EXPECT_EQ(study.factors[1].levels[1].changes.front().value->as_string(), "full");
  EXPECT_EQ(study.factors[2].levels[1].changes.size(), 2u);
  EXPECT_EQ(study.reference, (std::vector<int>{0, 0, 1}));
  EXPECT_TRUE(study.warmup.steady);
  EXPECT_EQ(study.cross, Cross::full);
  EXPECT_EQ(study.keep, Keep::global_batch);
}

TEST_F(StudyFileTest, repeats_are_a_number_or_end_where_a_difference_would_be_shown) {
  const std::string begin = R"({"base": "base.json", "factors": {"a": [1, 2]}, )";
  EXPECT_EQ(read(begin + R"("repeats": 7})").repeats.most, 7);
  const StudyFile study = read(begin + R"("repeats": {"until": 0.03, "most": 40}, "figure": "p10"})");
  EXPECT_DOUBLE_EQ(study.repeats.until, 0.03);
  EXPECT_EQ(study.repeats.least, 6);
  EXPECT_EQ(study.repeats.most, 40);
  EXPECT_DOUBLE_EQ(study.warmup.quantile, 0.1);
  expect_refused(begin + R"("repeats": {"most": 40}})", {"needs \"until\""});
  expect_refused(begin + R"("repeats": {"until": 0.03, "most": 4}})", {"\"most\" is a whole number from 6"});
  expect_refused(begin + R"("repeats": {"untill": 0.03}})", {"no key \"untill\"", "did you mean \"until\""});
  expect_refused(begin + R"("repeats": {"until": 0.03}, "noise_cell": false})", {"counts repeats by the noise cell"});
  EXPECT_DOUBLE_EQ(read(begin + R"("trim": 0.2})").trim, 0.2);
  EXPECT_DOUBLE_EQ(read(begin + R"("allow_load": 0.1})").allow_load, 0.1);
  for (const char* load : {"0", "1.5", "true"})
    expect_refused(begin + R"("allow_load": )" + load + "}", {"\"allow_load\" is the share of the host's CPU time"});
  expect_refused(begin + R"("trim": 0.5})", {"\"trim\" is at most 0.25"});
  expect_refused(begin + R"("figure": "mean"})", {"\"figure\" is", "found \"mean\""});
  expect_refused(begin + R"("figure": "p10", "warmup": {"rule": "first_steps"}})", {"leave \"figure\" out"});
}

TEST_F(StudyFileTest, an_outcome_takes_the_gate_away_and_seeds_go_by_repeats_alone) {
  const std::string begin = R"({"base": "base.json", "factors": {"a": [1, 2]}, )";
  EXPECT_GT(read(begin + R"("repeats": 2})").gate, 0);
  for (const char* learned : {R"("factors": {"optimizer.params.lr": [1, 2]}})", R"("factors": {"seed": [1, 2]}})",
                              R"("rows": [{"set": {"model.params.num_layers": 2}}, {"set": {"threads": 2}}]})"}) {
    const std::string file = std::string(R"({"base": "base.json", )") + learned;
    EXPECT_EQ(read(file).gate, 0) << learned << ": cells that learn something else are no mistake";
    EXPECT_GT(read(R"({"gate": 0.01, )" + file.substr(1)).gate, 0);
  }
  EXPECT_GT(read(R"({"base": "base.json", "factors": {"zero_optimization.stage": [1, 2]}})").gate, 0);
  const StudyFile study = read(begin + R"("outcome": "valid_loss", "seed_per_repeat": true})");
  EXPECT_EQ(study.gate, 0);
  EXPECT_EQ(study.outcomes.size(), 1u);
  EXPECT_TRUE(study.seed_per_repeat);
  EXPECT_DOUBLE_EQ(read(begin + R"("outcome": "valid_loss", "gate": 0.01})").gate, 0.01);
  expect_refused(begin + R"("outcome": {"metric": "x"}})", {"study.json:1", "say it", "\"better\""});
  expect_refused(begin + R"("set": {"seed": 3}, "seed_per_repeat": true})", {"both decide over the runs' seed"});
  expect_refused(R"({"base": "base.json", "factors": {"seed": [1, 2]}, "seed_per_repeat": true})",
                 {"leave one of them"});
  expect_refused(begin + R"("seed_per_repeat": 3})", {"true or false, found 3"});
}

TEST_F(StudyFileTest, refuses_what_is_wrong_with_place_and_remedy) {
  expect_refused("{}", {"study.json", "no \"base\""});
  expect_refused(R"({"base": "none.json"})", {"there is no file", "relative to the study's file"});
  expect_refused(R"({"base": "base.json"})", {"no cells", "\"factors\""});
  expect_refused("{\"base\": \"base.json\",\n \"repeat\": 3}", {"study.json:2:2", "no key \"repeat\"", "\"repeats\""});
  expect_refused(R"({"base": "base.json", "factors": {"a": [1]}})", {"has 1 level", "at least two"});
  expect_refused(R"({"base": "base.json", "factors": {"a": [1, 1]}})", {"two levels \"1\""});
  expect_refused(R"({"base": "base.json", "factors": {"world_size": [1, 0]}})", {"whole number of ranks", "found 0"});
  expect_refused(R"({"base": "base.json", "factors": {"a": [1, 2]}, "reference": {"b": 1}})", {"no factor \"b\""});
  expect_refused(R"({"base": "base.json", "factors": {"a": [1, 2]}, "reference": {"a": 3}})", {"no level 3"});
  expect_refused(R"({"base": "base.json", "factors": {"a": [1, 2]}, "cross": "ful"})", {"did you mean \"full\""});
  expect_refused(R"({"base": "base.json", "factors": {"a": [1, 2]}, "constraints": [{"if": {"a": 1}}]})",
                 {"a constraint is", "\"then\""});
  expect_refused(R"({"base": "base.json", "rows": [{"id": "x"}, {"id": "x"}]})", {"two rows have the id \"x\""});
  expect_refused(R"({"base": "base.json", "factors": {"a": [1, 2]}, "repeats": "x"})",
                 {"\"repeats\" is a whole number"});
  expect_refused(R"({"base": "base.json", "factors": {"a": [1, 2]}, "timeout_s": 0})", {"\"timeout_s\"", "above 0"});
  expect_refused(R"({"base": "base.json", "factors": {"a": [1, 2]}, "warmup": {"rule": "first_steps", "window": 3}})",
                 {"\"window\" goes with the rule \"steady\""});
  expect_refused(R"({"base": "base.json", "set": {"output_dir": "x"}, "factors": {"a": [1, 2]}})", {"\"output_dir\""});
}

}  // namespace
}  // namespace drivetrain::study
