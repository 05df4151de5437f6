// What a study is compared by: how an outcome is written, where in a run it is found, and what a report makes of it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <drivetrain/error.h>

#include "planted_study.h"
#include "study/charts.h"
#include "study/outcome.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

std::vector<Outcome> outcomes(const std::string& json) { return outcomes_of(parse_json(json, "study.json")); }

void expect_wrong(const std::string& json, const std::string& part) {
  try {
    outcomes(json);
    ADD_FAILURE() << "accepted: " << json;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::config);
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(Outcome, is_a_name_an_object_or_a_list) {
  EXPECT_EQ(outcomes(R"("valid_loss")")[0].name(), "valid_loss");
  EXPECT_FALSE(outcomes(R"("valid_loss")")[0].higher);
  EXPECT_TRUE(outcomes(R"("eval/arc/acc_norm")")[0].higher);
  const std::vector<Outcome> two = outcomes(R"([{"metric": "gap", "at": "best", "better": "higher"},
    {"metric": "loss", "at": {"tokens": 5000}, "window": 4}])");
  EXPECT_TRUE(two[0].higher);
  EXPECT_EQ(two[0].column(), "best_gap");
  EXPECT_EQ(two[1].name(), "loss at 5000 tokens, mean of 4");
  expect_wrong(R"("gap")", "whether a higher or a lower gap is better");
  expect_wrong(R"({"metric": "loss", "at": "end"})", "\"equal_tokens\"");
  expect_wrong(R"({"metric": "loss", "better": "less"})", "\"lower\" or \"higher\"");
  expect_wrong(R"({"metric": "loss", "when": 3})", "no key \"when\"");
  expect_wrong(R"({"metric": "loss", "at": {"step": 0}})", "above 0");
  expect_wrong(R"(["loss", "loss"])", "two outcomes are loss");
  expect_wrong("[]", "empty list");
  expect_wrong("3", "an outcome is the name");
}

// A run of ten steps of 100 tokens and 2 s, with a validation at every fifth one.
struct OneRun {
  std::map<std::string, Series> figures = {{"valid_loss", {{5, 10}, {4, 3}}}};
  std::vector<double> tokens = std::vector<double>(10, 100), step_s = std::vector<double>(10, 2);
  Found found(const std::string& json) const { return found_in({&figures, &tokens, &step_s}, outcomes(json)[0]); }
};

TEST(Outcome, is_found_at_the_end_the_best_and_between_two_values) {
  OneRun run;
  EXPECT_DOUBLE_EQ(run.found(R"("valid_loss")").value, 3);
  EXPECT_DOUBLE_EQ(run.found(R"({"metric": "valid_loss", "at": {"tokens": 750}})").value, 3.5);
  EXPECT_DOUBLE_EQ(run.found(R"({"metric": "valid_loss", "at": {"seconds": 12}})").value, 3.8);
  EXPECT_DOUBLE_EQ(run.found(R"({"metric": "valid_loss", "at": {"step": 10}})").value, 3);
  EXPECT_DOUBLE_EQ(run.found(R"({"metric": "valid_loss", "window": 2})").value, 3.5);
  run.figures["valid_loss"].value = {2, 3};
  EXPECT_DOUBLE_EQ(run.found(R"({"metric": "valid_loss", "at": "best"})").value, 2);
  EXPECT_DOUBLE_EQ(run.found(R"({"metric": "valid_loss", "at": "best", "better": "higher"})").value, 3);
}

TEST(Outcome, that_is_not_there_says_why) {
  OneRun run;
  EXPECT_NE(run.found(R"("loss")").missing.find("no figure loss; it has valid_loss"), std::string::npos);
  EXPECT_NE(run.found(R"({"metric": "valid_loss", "at": {"tokens": 1001}})").missing.find("from 500 to 1000 tokens"),
            std::string::npos);
  run.figures["valid_loss"].value[1] = std::nan("");
  const Found found = run.found(R"("valid_loss")");
  EXPECT_FALSE(found.absent);
  EXPECT_EQ(found.missing, "valid_loss is not a finite number at step 10");
  EXPECT_DOUBLE_EQ(run.found(R"({"metric": "valid_loss", "at": "best"})").value, 4) << "of those that are finite";
}

// The planted study with a validation loss: the faster a cell is, the worse it learns; noise of the seed is shared.
StudyRecord learning(const std::string& outcome) {
  StudyRecord study = planted();
  study.gate = 0, study.outcomes = outcomes(outcome);
  const std::vector<double> losses = {3.0, 2.9, 2.8, 2.7, 3.5, 3.0};
  for (size_t cell = 0; cell < study.cells.size(); ++cell)
    for (RunRecord& run : study.cells[cell].runs) {
      const double seed = 20 * noise(3 * static_cast<int>(run.block));
      const double own = 0.002 * noise(static_cast<int>(7 * cell + 5 * static_cast<size_t>(run.block)));
      run.figures["valid_loss"] = {{6, 12}, {losses[cell] + 1 + seed, losses[cell] + seed + own}};
    }
  return study;
}

TEST(Outcome, decides_over_places_effects_and_words_and_speed_stands_beside_it) {
  StudyRecord study = learning(R"("valid_loss")");
  const Analysis analysis = analysis_of(study);
  ASSERT_EQ(analysis.ranking.size(), 5u) << "another loss is no reason to leave a cell out";
  EXPECT_EQ(study.cells[analysis.ranking.front()].id, "a=1,b=1");
  EXPECT_EQ(analysis.cells[3].compared().verdict, Verdict::better);
  EXPECT_EQ(analysis.cells[4].compared().verdict, Verdict::worse);
  EXPECT_EQ(analysis.cells[3].against.verdict, Verdict::worse) << "by speed";
  EXPECT_GT(*analysis.cells[3].outcomes[0].against.welch, 1e-4) << "the seeds' noise is larger than the difference";
  EXPECT_LT(*analysis.cells[3].outcomes[0].against.paired, 1e-6) << "paired it is not";
  ASSERT_FALSE(analysis.effects.empty());
  EXPECT_NEAR(analysis.effects[0].change, -0.034, 0.01);
  const std::string first = ranking_lines(study, analysis).front();
  EXPECT_NE(first.find("a 1, b 1: valid_loss 2."), std::string::npos) << first;
  EXPECT_NE(first.find("better than the reference (-"), std::string::npos) << first;
  EXPECT_NE(markdown_text(study, analysis).find("|  | cell | a | b | n | valid_loss |"), std::string::npos);
  const std::string curves = curves_script(study, analysis);
  for (const char* part : {"filledcurves", "unit = 1\n", "set xlabel 'tokens'"})
    EXPECT_NE(curves.find(part), std::string::npos) << part << curves;
  for (RunRecord& run : study.cells[0].runs)
    for (double& tokens : run.tokens) tokens *= 1000;
  const std::string thousands = curves_script(study, analysis_of(study));
  for (const char* part : {"unit = 1000\n", "set xlabel 'tokens, thousands'"})
    EXPECT_NE(thousands.find(part), std::string::npos) << part << thousands;
  EXPECT_NE(outcome_script(study, analysis, analysis.ranking).find("'outcome'"), std::string::npos);
}

TEST(Outcome, at_equal_tokens_is_where_every_run_has_been) {
  StudyRecord study = learning(R"({"metric": "valid_loss", "at": "equal_tokens"})");
  for (RunRecord& run : study.cells[2].runs) run.figures["valid_loss"] = {{6, 9}, {4, 2}};
  const Analysis analysis = analysis_of(study);
  EXPECT_DOUBLE_EQ(analysis.outcomes[0].point, 9 * 256);
  EXPECT_DOUBLE_EQ(analysis.cells[2].summary().mean, 2);
  const std::vector<double>& ends = study.cells[0].runs[0].figures["valid_loss"].value;
  EXPECT_DOUBLE_EQ(analysis.cells[0].values()[0], (ends[0] + ends[1]) / 2);
}

TEST(Outcome, that_is_not_finite_in_one_cell_is_told_and_nothing_else_is_lost) {
  StudyRecord study = learning(R"("valid_loss")");
  for (RunRecord& run : study.cells[1].runs) run.figures["valid_loss"].value[1] = std::nan("");
  study.cells[2].runs[0].figures["valid_loss"].value[1] = std::numeric_limits<double>::infinity();
  const Analysis analysis = analysis_of(study);
  EXPECT_EQ(analysis.ranking.size(), 4u);
  EXPECT_EQ(analysis.cells[2].compared().n, kBlocks - 1);
  EXPECT_EQ(analysis.cells[1].against.verdict, Verdict::worse) << "its speed is known";
  std::string notes;
  for (const std::string& line : notes_of(study, analysis)) notes += line + "\n";
  EXPECT_NE(notes.find("Not ranked by valid_loss: a 1, b 0: valid_loss is not a finite number at step 12"),
            std::string::npos)
      << notes;
  EXPECT_NE(notes.find("a 0, b 1: 1 of 6 runs have no valid_loss"), std::string::npos) << notes;
  EXPECT_NE(markdown_text(study, analysis).find("no valid_loss"), std::string::npos);
}

TEST(Outcome, that_no_run_has_is_one_message) {
  StudyRecord study = learning(R"("valid_loss")");
  study.outcomes = outcomes(R"("eval/arc/acc")");
  const Analysis analysis = analysis_of(study);
  EXPECT_TRUE(analysis.ranking.empty());
  int told = 0;
  for (const std::string& line : notes_of(study, analysis))
    told +=
        line.starts_with("No run has the outcome eval/arc/acc: the run has no figure eval/arc/acc; it has valid_loss");
  EXPECT_EQ(told, 1);
  EXPECT_EQ(charts_of(study, analysis, *std::make_unique<std::string>()).empty(), false) << "speeds are still drawn";
}

TEST(Outcome, that_can_be_negative_is_compared_by_differences) {
  StudyRecord study = learning(R"({"metric": "gap", "better": "higher"})");
  for (size_t cell = 0; cell < study.cells.size(); ++cell)
    for (RunRecord& run : study.cells[cell].runs)
      run.figures["gap"] = {{12}, {static_cast<double>(cell) - 1.5 + noise(static_cast<int>(run.block + 5 * cell))}};
  const Analysis analysis = analysis_of(study);
  EXPECT_EQ(analysis.scale, Scale::difference);
  EXPECT_NEAR(analysis.cells[2].compared().change, 2, 0.05);
  EXPECT_EQ(study.cells[analysis.ranking.front()].id, "wrong");
  EXPECT_NE(ranking_lines(study, analysis).front().find("+4"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain::study
