// What the forms of a report say of planted runs.
#include <gtest/gtest.h>

#include <sstream>

#include "planted_study.h"
#include "study/charts.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

TEST(Report, every_form_names_every_cell) {
  const StudyRecord study = planted();
  const Analysis analysis = analysis_of(study);
  const std::string csv = csv_text(analysis), json = json_text(study, analysis);
  for (const CellRecord& cell : study.cells) {
    EXPECT_NE(csv.find(cell.id), std::string::npos);
    EXPECT_NE(json.find("\"" + cell.id + "\""), std::string::npos);
  }
  const std::string page = html_text(study, analysis, {}, "none");
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos);
  EXPECT_EQ(parse_json(json, "json").find("cells")->items().size(), study.cells.size());
}

// A column of the file by its name, of the first cell.
std::string column_of(const std::string& csv, const std::string& name) {
  std::istringstream lines(csv);
  std::string head, row, column, value;
  std::getline(lines, head), std::getline(lines, row);
  std::istringstream columns(head), values(row.substr(row.rfind('"', row.find(",ok,")) + 1));
  for (std::getline(values, value, ','); std::getline(columns, column, ','); std::getline(values, value, ','))
    if (column == name) return value;
  return "";
}

// Whatever stands for a run, a column that is named median has the median of the steps.
TEST(Report, medians_are_medians_with_every_figure) {
  StudyRecord study = planted();
  for (RunRecord& run : study.cells[0].runs)
    for (size_t i = 0; i < run.step_s.size(); ++i) run.step_s[i] = i % 4 == 0 ? 0.01 : i % 4 == 1 ? 0.03 : 0.02;
  study.warmup.quantile = 0;
  const Analysis analysis = analysis_of(study);
  EXPECT_DOUBLE_EQ(analysis.cells[0].step_s.mean, 0.01) << "the figure";
  EXPECT_EQ(column_of(csv_text(analysis), "step_s_median"), "0.02");
  EXPECT_NE(html_text(study, analysis, {}, "none").find("10 / 20 / 30"), std::string::npos);
  EXPECT_NE(json_text(study, analysis).find("\"step_s_p50\": 0.02"), std::string::npos);
}

TEST(Report, a_study_that_ended_by_itself_does_not_read_as_one_that_was_cut_off) {
  StudyRecord study = planted();
  const auto page = [&] { return html_text(study, analysis_of(study), {}, "none"); };
  EXPECT_NE(page().find("6 cells, 6 repeats each; 36 of 36 runs have ended."), std::string::npos);
  study.repeats = 100, study.until = 0.03;
  const std::string rule = "6 cells, up to 100 repeats each, until a difference of 3 % would be shown; ";
  EXPECT_NE(page().find(rule + "36 of at most 600 runs have ended."), std::string::npos);
  study.enough = 6;
  EXPECT_NE(page().find(rule + "6 were enough, and the study has ended."), std::string::npos);
}

TEST(Report, a_level_of_any_characters_is_shown_as_it_is) {
  StudyRecord study = planted();
  study.cells[1].id = "a=3_%,b=0", study.cells[1].levels[0].second = "3 %";
  EXPECT_EQ(label_of(study.cells[1], study), "a 3 %, b 0");
  EXPECT_TRUE(is_all_levels(study.cells[1]));
  EXPECT_FALSE(is_all_levels(study.cells[4])) << "a row with a name of its own";
  const Analysis analysis = analysis_of(study);
  EXPECT_NE(begin_of_rows(study, analysis, {1}, "speed").find("a 3 %%, b 0"), std::string::npos)
      << "gnuplot takes it for a format";
}

TEST(Report, shares_energy_and_times_of_day_are_in_every_form_that_has_room) {
  StudyRecord study = planted();
  for (RunRecord& run : study.cells[0].runs) {
    run.began = "2026-11-25T10:00:00Z", run.ended = "2026-11-25T10:00:09Z";
    run.end = parse_json(R"({"part_shares": {"forward": 0.25, "update": 0.75}, "communication_share": 0.125,
      "communication_share_most": 0.2, "energy_j": 90, "steps_energy_j": 44, "energy_steps": 11})",
                         "end");
  }
  const Analysis analysis = analysis_of(study);
  EXPECT_DOUBLE_EQ(analysis.cells[0].part_shares.at("forward"), 0.25);
  EXPECT_DOUBLE_EQ(*analysis.cells[0].joules_per_1k_tokens, 1000 * 44. / (11 * 8 * 32));
  EXPECT_FALSE(analysis.cells[1].energy_j);
  const Value cell = parse_json(json_text(study, analysis), "json").find("cells")->items()[0];
  EXPECT_EQ(cell.find("runs")->items()[0].find("ended")->as_string(), "2026-11-25T10:00:09Z");
  EXPECT_EQ(cell.find("part_shares")->find("update")->as_double(), 0.75);
  const std::string page = html_text(study, analysis, {}, "none");
  for (const char* part : {"Shares of a step", "12.5 %", "20.0 %", "J per 1000 tokens", "15.62"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
}

}  // namespace
}  // namespace drivetrain::study
