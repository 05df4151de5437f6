// What the forms of a report say of planted runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include <drivetrain/toolkit/text.h>

#include "planted_study.h"
#include "study/charts.h"
#include "study/design.h"
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
  for (const char* loads : {"src=", "href=", "url(", "import", "fetch("})
    EXPECT_EQ(page.find(loads), std::string::npos) << "the page is whole in itself: " << loads;
  EXPECT_EQ(parse_json(json, "json").find("cells")->items().size(), study.cells.size());
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields = {""};
  bool quoted = false;
  for (const char c : line)
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      fields.emplace_back();
    else
      fields.back() += c;
  return fields;
}

// A column of the file by its name, of its first row.
std::string column_of(const std::string& csv, const std::string& name) {
  std::istringstream lines(csv);
  std::string head, row;
  std::getline(lines, head), std::getline(lines, row);
  const std::vector<std::string> columns = fields_of(head), values = fields_of(row);
  EXPECT_EQ(columns.size(), values.size());
  const auto at = std::find(columns.begin(), columns.end(), name);
  return at == columns.end() ? "no such column" : values[static_cast<size_t>(at - columns.begin())];
}

TEST(Report, tables_of_cells_and_of_runs_have_a_column_per_factor) {
  StudyRecord study = planted();
  study.cells[0].runs[0].reason = "with \"quotes\", a comma";
  for (CellRecord& cell : study.cells) cell.levels[1].first = "state";  // as a column of the table is called
  const Analysis analysis = analysis_of(study);
  const std::string cells = csv_text(analysis), runs = runs_csv(study, analysis);
  EXPECT_EQ(column_of(cells, "a"), "0");
  EXPECT_EQ(column_of(cells, "factor.state"), "0");
  EXPECT_EQ(column_of(cells, "state"), "ok");
  EXPECT_EQ(std::count(cells.begin(), cells.end(), '\n'), 1 + 6);
  EXPECT_EQ(std::count(runs.begin(), runs.end(), '\n'), 1 + 6 * kBlocks);
  EXPECT_EQ(column_of(runs, "repeat"), "1");
  EXPECT_EQ(column_of(runs, "a"), "0");
  EXPECT_EQ(column_of(runs, "tgs_padded"), formatted("%.9g", analysis.cells[0].tgs[0]));
}

TEST(Report, the_ranking_is_a_table_that_can_be_pasted) {
  StudyRecord study = planted();
  study.cells[2].levels[1].second = "50 %_|";
  study.cells[2].id = "a=0,b=50_%_|";
  const Analysis analysis = analysis_of(study);
  const Table table = ranking_table(study, analysis);
  EXPECT_EQ(table.rows.size(), study.cells.size());
  for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.head.size());
  EXPECT_EQ(table.rows[0][0], "1");
  EXPECT_EQ(table.rows.back()[0], "A/A");
  const std::string latex = latex_of(table), markdown = markdown_of(table);
  EXPECT_NE(latex.find("50 \\%\\_| &"), std::string::npos) << latex;
  EXPECT_TRUE(latex.starts_with("\\begin{tabular}{"));
  EXPECT_NE(markdown.find("50 %_\\| |"), std::string::npos) << markdown;
  EXPECT_NE(markdown.find("| reference |"), std::string::npos);
}

TEST(Report, figures_beyond_sense_are_words) {
  StudyRecord study = planted();
  for (CellRecord& cell : study.cells) cell.runs.resize(2);
  for (double& step : study.cells[1].runs[1].step_s) step *= 6;
  const Analysis analysis = analysis_of(study);
  const std::string page = html_text(study, analysis, {}, "none"), words = ranking_lines(study, analysis).back();
  EXPECT_NE(page.find("n = 2 shows nothing below a factor of "), std::string::npos);
  EXPECT_NE(words.find("shows nothing below a factor of "), std::string::npos) << words;
  EXPECT_EQ(change_text(0.5, Scale::ratio), "+50.0 %");
  EXPECT_EQ(change_text(11, Scale::ratio), "x 12");
  for (const CellResult& cell : analysis.cells) EXPECT_GT(cell.speed.confidence->low, 0);
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

TEST(Report, long_labels_are_whole_and_differences_alone) {
  StudyRecord study = planted();
  std::string level;
  for (int i = 0; i < 20; ++i) level += (i > 0 ? " word" : "word") + std::to_string(i);
  for (CellRecord& cell : study.cells) cell.levels.emplace_back("same", "everywhere");
  study.cells[1].levels[0].second = level;
  study.cells[1].id = file_name("a=" + level + ",b=0,same=everywhere");
  const Analysis analysis = analysis_of(study);
  const std::string label = tick(label_of(study.cells[1], study));
  EXPECT_EQ(label.find("same"), std::string::npos) << label;
  EXPECT_EQ(label.find("..."), std::string::npos) << label;
  for (int i = 0; i < 20; ++i) EXPECT_NE(label.find("word" + std::to_string(i)), std::string::npos) << label;
  std::istringstream lines(label);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 64u);
  EXPECT_GT(lines_of(label), 2u);
  EXPECT_EQ(tick(std::string(200, 'x')), std::string(200, 'x')) << "a word is not broken";
  const std::string one = begin_of_rows(study, analysis, {0}, "speed"),
                    two = begin_of_rows(study, analysis, {1}, "speed");
  const auto height = [](const std::string& script) { return std::stoi(script.substr(script.find("1150,") + 5)); };
  EXPECT_GT(height(two), height(one)) << "rows have room for all lines";
}

TEST(Report, cells_that_failed_are_crosses_with_words_and_no_bars) {
  StudyRecord study = planted();
  for (RunRecord& run : study.cells[1].runs) run.state = State::timeout;
  const Analysis analysis = analysis_of(study);
  std::string why;
  const std::string mark = failure_mark("timeout", "graph 0.01", 2);
  EXPECT_NE(mark.find("point pt 2"), std::string::npos) << mark;
  const std::string script = speed_script(study, analysis, {0, 1, 4});
  EXPECT_NE(script.find(failure_mark("timeout", "graph 0.01", 2)), std::string::npos) << script;
  EXPECT_NE(script.find("another loss than the reference's"), std::string::npos) << "of the cell that is not ranked";
  const std::string bars =
      script.substr(script.find("$bars << EOD"),
                    script.find("EOD\n", script.find("$bars << EOD") + 13) - script.find("$bars << EOD"));
  EXPECT_EQ(std::count(bars.begin(), bars.end(), '\n'), 2) << bars;
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
