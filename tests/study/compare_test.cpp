// The cells that two studies share, by outcomes and speed: paired by seed or by Welch's test, with intervals.
#include "study/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <drivetrain/error.h>

#include "planted_ledger.h"

namespace drivetrain::study {
namespace {

class Compared : public PlantedLedgers {
 protected:
  static constexpr int kRepeats = 5;

  // `outcome`: of the study's file, as JSON; "": none.
  void begin(const std::string& name, const Planted& run, const std::string& outcome = "\"valid_loss\"") const {
    Ledger ledger(folder(name));
    Value first = head("study", kRepeats);
    Value without = Value::object();
    for (const Value::Member& m : first.members())
      if (m.key != "outcome") without.set(m.key, m.value);
    if (!outcome.empty()) without.set("outcome", parse_json(outcome, "outcome"));
    ledger.add(without), ledger.add(cell("1")), ledger.add(cell("2"));
    add_planted(ledger, {"lr=1"}, 0, kRepeats, {.seed = 1});
    add_planted(ledger, {"lr=2"}, 0, kRepeats, run);
  }
  std::string text(const std::string& outcome = "", const char* first = "a") const {
    return compare_text({.a = folder(first), .b = folder("b"), .outcome = outcome});
  }
  Value figure(int index, const std::string& outcome = "") const {
    const std::string json = compare_text({.a = folder("a"), .b = folder("b"), .outcome = outcome, .json = true});
    return parse_json(json, "compare").find("figures")->items().at(static_cast<size_t>(index));
  }
  static const Value& second_cell(const Value& figure) { return figure.find("cells")->items().at(1); }
  static double number(const Value& cell, const char* key) { return cell.find(key)->as_double(); }
};

// Repeats of one study differ by up to 0.1; one seed's two runs by the 0.02 that are planted alone.
TEST_F(Compared, outcomes_are_paired_by_seed_where_both_studies_have_the_same) {
  begin("a", {.seed = 1}), begin("b", {.seed = 1, .shift = -0.02});
  const Value loss = figure(0), cell = second_cell(loss);
  EXPECT_EQ(loss.find("figure")->as_string(), "valid_loss");
  EXPECT_EQ(cell.find("verdict")->as_string(), "better");
  EXPECT_EQ(cell.find("test")->as_string(), "paired by seed");
  EXPECT_NEAR(number(cell, "mean_b") - number(cell, "mean_a"), -0.02, 1e-12);
  EXPECT_LT(number(cell, "low"), number(cell, "change"));
  EXPECT_LT(number(cell, "high"), 0);
  EXPECT_EQ(loss.find("cells")->items().at(0).find("verdict")->as_string(), "the same in every repeat");
  EXPECT_EQ(figure(1).find("figure")->as_string(), "TGS");
  EXPECT_EQ(second_cell(figure(1)).find("test")->as_string(), "Welch") << "speeds did not run side by side";
  EXPECT_NE(text().find("better (paired by seed, p "), std::string::npos) << text();
}

TEST_F(Compared, outcomes_of_other_seeds_go_by_welchs_test_and_interval) {
  begin("a", {.seed = 1}), begin("b", {.seed = 100, .shift = -0.02});
  EXPECT_EQ(second_cell(figure(0)).find("verdict")->as_string(), "no difference shown");
  begin("c", {.seed = 100, .shift = -1});
  const std::string json = compare_text({.a = folder("a"), .b = folder("c"), .json = true});
  const Value cell = second_cell(parse_json(json, "compare").find("figures")->items().at(0));
  EXPECT_EQ(cell.find("verdict")->as_string(), "better");
  EXPECT_EQ(cell.find("test")->as_string(), "Welch");
  EXPECT_NEAR(number(cell, "change"), std::log(1.65 / 2.65), 0.1) << "a ratio of losses";
  EXPECT_LT(number(cell, "high"), -0.3);
  EXPECT_GT(number(cell, "low"), -1) << "no loss is below zero";
}

TEST_F(Compared, equal_tokens_are_those_that_the_runs_of_both_have_reached) {
  begin("a", {.seed = 1}), begin("b", {.seed = 1, .steps = 3});
  const Value figure = this->figure(0, R"({"metric": "valid_loss", "at": "equal_tokens"})");
  EXPECT_EQ(figure.find("figure")->as_string(), "valid_loss at equal tokens");
  // 48 tokens: half way between A's two values, which differ by 1, and the last one of B.
  EXPECT_NEAR(number(second_cell(figure), "mean_a") - number(second_cell(figure), "mean_b"), 0.5, 1e-12);
  const Value best =
      this->figure(0, R"([{"metric": "valid_loss", "at": "best"}, {"metric": "valid_loss", "at": {"step": 2}}])");
  EXPECT_NEAR(number(second_cell(best), "change"), 0, 1e-12);
}

TEST_F(Compared, a_figure_of_one_cell_that_is_not_finite_is_told_and_nothing_else_is_lost) {
  begin("a", {.seed = 1}), begin("b", {.seed = 1, .shift = std::nan("")});
  const std::string said = text();
  EXPECT_NE(said.find("lr=2  B: valid_loss is not a finite number at step 4"), std::string::npos) << said;
  EXPECT_NE(said.find("lr=1       "), std::string::npos);
  EXPECT_NE(said.find("the same in every repeat"), std::string::npos) << said;
  EXPECT_EQ(second_cell(figure(1)).find("verdict")->as_string(), "no difference shown")
      << "its speed is compared: " << said;
}

TEST_F(Compared, an_outcome_that_no_run_has_is_one_message_with_those_that_there_are) {
  begin("a", {.seed = 1}), begin("b", {.seed = 1});
  try {
    text("valid_los");
    ADD_FAILURE() << "compared";
  } catch (const Error& e) {
    const std::string said = e.what();
    EXPECT_EQ(e.code(), ErrorCode::config);
    EXPECT_NE(said.find("has the figure valid_los"), std::string::npos) << said;
    EXPECT_NE(said.find("did you mean \"valid_loss\""), std::string::npos) << said;
    EXPECT_NE(said.find("their runs have: valid_loss"), std::string::npos) << said;
  }
  begin("c", {.seed = 1}, R"("eval/arc/acc")");
  const std::string said = text("", "c");  // a study that asked for what it never had: the other figures stand
  EXPECT_NE(said.find("A: the run has no figure eval/arc/acc; it has valid_loss"), std::string::npos) << said;
  EXPECT_NE(said.find("\nvalid_loss, lower is better"), std::string::npos) << said;
  EXPECT_NE(said.find("\nTGS, padded tokens"), std::string::npos) << said;
}

TEST_F(Compared, a_study_without_outcomes_is_compared_by_the_figure_that_is_asked_for) {
  begin("a", {.seed = 1}, ""), begin("b", {.seed = 1, .shift = 0.5}, "");
  EXPECT_EQ(figure(0).find("figure")->as_string(), "TGS");
  EXPECT_EQ(second_cell(figure(0, "valid_loss")).find("verdict")->as_string(), "worse");
}

}  // namespace
}  // namespace drivetrain::study
