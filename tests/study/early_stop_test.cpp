// Cells that stop early: the rule, its error over many made-up studies, and what reports say.
#include "study/early_stop.h"

#include <gtest/gtest.h>

#include <random>

#include <drivetrain/error.h>

#include "planted_study.h"
#include "study/past_runs.h"
#include "study/report.h"
#include "study/study_rules.h"

namespace drivetrain::study {
namespace {

constexpr double kLevel = 0.05;
const std::vector<std::string> kCompeting = {"a=0,b=0", "a=1,b=0", "a=0,b=1", "a=1,b=1", "wrong"};

std::vector<std::string> stopped_in(const StudyRecord& study, double level, int64_t looks = 1) {
  std::vector<std::string> ids;
  for (const StoppedCell& one : cells_to_stop(analysis_of(study), kCompeting, level, 4, looks)) ids.push_back(one.cell);
  return ids;
}

TEST(EarlyStop, stops_what_is_worse_than_the_best_and_neither_the_reference_nor_its_pair) {
  StudyRecord study = planted();
  const std::vector<std::string> slow = {"a=0,b=1", "a=1,b=1"};
  EXPECT_EQ(stopped_in(study, 1e-4), slow) << "cells of half the speed";
  for (RunRecord& run : study.cells[0].runs)  // the reference is the worst one by far
    for (double& step : run.step_s) step *= 10;
  for (const std::string& id : stopped_in(study, 0.5)) EXPECT_NE(id, "a=0,b=0");
  for (CellRecord& cell : study.cells) cell.runs.resize(2);
  EXPECT_TRUE(stopped_in(study, 0.5).empty()) << "two pairs say nothing";
}

TEST(EarlyStop, more_rivals_and_looks_ask_for_more) {
  const StudyRecord study = planted();
  const auto one = cells_to_stop(analysis_of(study), kCompeting, kLevel, 1, 1),
             many = cells_to_stop(analysis_of(study), kCompeting, kLevel, 4, 10);
  ASSERT_FALSE(one.empty());
  ASSERT_FALSE(many.empty());
  EXPECT_DOUBLE_EQ(one[0].level, kLevel);
  EXPECT_DOUBLE_EQ(many[0].level, kLevel / 40);
  EXPECT_LT(many[0].p, many[0].level);
}

// Four equal cells: any of them can be called the best. The third, which is not the reference, is stopped at a look in
// at most 5 % of studies.
TEST(EarlyStop, stops_the_best_cell_no_more_often_than_it_says) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(0, 0.02);
  constexpr int kStudies = 600, kRepeats = 8, kAfter = 3;
  int stopped = 0;
  for (int i = 0; i < kStudies; ++i) {
    StudyRecord study = planted();
    study.cells.resize(4);
    for (CellRecord& cell : study.cells) {
      const RunRecord pattern = cell.runs.front();
      cell.runs.clear();
      for (int block = 0; block < kRepeats; ++block) {
        cell.runs.push_back(pattern);
        cell.runs.back().block = block;
        cell.runs.back().step_s.assign(12, 0.01 * std::exp(noise(random)));
      }
    }
    const StudyRecord whole = study;
    bool here = false;
    for (int blocks = kAfter; blocks < kRepeats; ++blocks) {
      for (size_t c = 0; c < 4; ++c)
        study.cells[c].runs.assign(whole.cells[c].runs.begin(), whole.cells[c].runs.begin() + blocks);
      for (const StoppedCell& one : cells_to_stop(analysis_of(study), kCompeting, kLevel, 3, kRepeats - kAfter))
        here |= one.cell == "a=0,b=1";
    }
    stopped += here;
  }
  EXPECT_LE(stopped, kStudies * kLevel);
}

TEST(EarlyStop, reports_show_it_with_its_repeats_and_the_rule) {
  StudyRecord study = planted();
  study.stop_level = kLevel;
  study.cells[2].runs.resize(3);
  study.cells[2].stopped = {3, "a=0,b=0", -0.5, 0.001, true};
  const Analysis analysis = analysis_of(study);
  const std::string page = html_text(study, analysis, {}, "none");
  for (const char* part :
       {"5 cells and the reference a second time (A/A), 1 of them stopped early, 6 repeats each; 33 of 33 runs have "
        "ended.",
        ", stopped</td>",
        "Stopped early: a 0, b 1 after 3 repeats: it could not win against a 0, b 0 (-50.0 %, one-sided p = 0.001)",
        "at 5 % over all rivals and looks"})
    EXPECT_NE(page.find(part), std::string::npos) << part << "\n" << page;
  EXPECT_NE(json_text(study, analysis).find("\"stopped_after\": 3"), std::string::npos);
  Value line = Value::object();
  line.set("event", "stopped"), line.set("cell", "x");
  EXPECT_TRUE(stopped_cells({line}).contains("x"));
}

TEST(EarlyStop, a_rule_that_cannot_be_is_refused) {
  const auto read = [](const std::string& json, int64_t repeats) {
    StudyFile study;
    study.repeats.most = repeats;
    read_rules(parse_json(json, "study.json"), study);
    return study.early_stop;
  };
  EXPECT_EQ(read(R"({"early_stop": {}})", 5).after, 3);
  EXPECT_DOUBLE_EQ(read(R"({"early_stop": {"after": 4, "level": 0.01}})", 5).level, 0.01);
  EXPECT_EQ(read("{}", 5).after, 0);
  const auto refused = [&](const std::string& json, const std::string& part) {
    try {
      read(json, 4);
    } catch (const Error& e) {
      return std::string(e.what()).find(part) != std::string::npos;
    }
    return false;
  };
  EXPECT_TRUE(refused(R"({"early_stop": {"after": 4}})", "looks first after 4 repeats, and the study has 4"));
  for (const char* wrong : {"true", R"({"after": 2})", R"({"after": 3.5})", R"({"level": 0})", R"({"level": 0.9})"})
    EXPECT_TRUE(refused(R"({"early_stop": )" + std::string(wrong) + "}", "\"early_stop\" is {\"after\": REPEATS"));
  EXPECT_TRUE(refused(R"({"early_stop": {"afte": 3}})", "did you mean \"after\""));
}

}  // namespace
}  // namespace drivetrain::study
