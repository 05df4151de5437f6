// What the forms of a report say of planted runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <stdexcept>

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

// By column.
std::vector<std::map<std::string, std::string>> rows_of(const std::string& csv) {
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  const std::vector<std::string> head = fields_of(line);
  std::vector<std::map<std::string, std::string>> rows;
  while (std::getline(lines, line)) {
    const std::vector<std::string> fields = fields_of(line);
    EXPECT_EQ(fields.size(), head.size()) << line;
    rows.emplace_back();
    for (size_t i = 0; i < std::min(head.size(), fields.size()); ++i) rows.back()[head[i]] = fields[i];
  }
  return rows;
}

// What the page's script draws and filters is what report.csv has, cell by cell.
TEST(Report, the_data_of_the_page_are_those_of_the_table) {
  StudyRecord study = planted();
  study.outcomes = outcomes_of(parse_json("\"valid_loss\"", "study.json"));
  for (size_t cell = 0; cell < study.cells.size(); ++cell)
    for (RunRecord& run : study.cells[cell].runs)
      run.figures["valid_loss"] = {{12}, {3 + 0.1 * static_cast<double>(cell) + noise(static_cast<int>(run.block))}};
  study.cells[1].levels[0].second = "</script> 1", study.cells[1].id = file_name("a=</script> 1,b=0");
  for (RunRecord& run : study.cells[2].runs) run.state = State::timeout;
  const Analysis analysis = analysis_of(study);
  const std::string page = html_text(study, analysis, {}, "none"), begin = "id='study'>";
  const size_t from = page.find(begin) + begin.size();
  const Value data = parse_json(page.substr(from, page.find("</script>", from) - from), "page");
  const std::vector<Value>& cells = data.find("cells")->items();
  const auto rows = rows_of(csv_text(analysis));
  ASSERT_EQ(cells.size(), rows.size());
  const auto expect_same = [](const Value& figure, const std::string& text, double factor, const std::string& what) {
    ASSERT_EQ(text.empty(), figure.is_null()) << what;
    if (text.empty()) return;
    EXPECT_NEAR(figure.items()[0].as_double(), factor * std::stod(text), 1e-5 * factor * std::stod(text)) << what;
  };
  for (size_t i = 0; i < cells.size(); ++i) {
    const Value& cell = cells[i];
    const auto& row = rows[i];
    EXPECT_EQ(cell.find("id")->as_string(), row.at("cell"));
    EXPECT_EQ(cell.find("levels")->items()[0].as_string(), row.at("a"));
    EXPECT_EQ(cell.find("levels")->items()[1].as_string(), row.at("b"));
    EXPECT_EQ(std::to_string(cell.find("ranks")->as_int()), row.at("ranks"));
    const std::vector<Value>& figures = cell.find("figures")->items();
    ASSERT_EQ(figures.size(), data.find("figures")->items().size());
    const auto named = [&](const std::string& name) -> const Value& {
      for (size_t f = 0; f < figures.size(); ++f)
        if (data.find("figures")->items()[f].find("name")->as_string() == name) return figures[f];
      throw std::runtime_error("the page has no figure " + name);
    };
    expect_same(named("valid_loss"), row.at("valid_loss"), 1, row.at("cell"));
    expect_same(named("TGS"), row.at("tgs_padded"), 1, row.at("cell"));
    expect_same(named("ms per step"), row.at("step_s_median"), 1e3, row.at("cell"));
    EXPECT_EQ(cell.find("why")->as_string().empty(), row.at("state") == "ok" && row.at("gate") != "failed")
        << row.at("cell");
    if (row.at("state") != "ok") continue;
    const Value& speed = named("TGS");
    EXPECT_NEAR(speed.items()[1].as_double(), std::stod(row.at("tgs_low")), 1e-5 * std::stod(row.at("tgs_low")));
    EXPECT_NEAR(speed.items()[2].as_double(), std::stod(row.at("tgs_high")), 1e-5 * std::stod(row.at("tgs_high")));
    EXPECT_EQ(std::to_string(speed.items()[3].as_int()), row.at("n"));
  }
  EXPECT_EQ(cells[2].find("why")->as_string(), "timeout");
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

// As the performance study of Megatron-DeepSpeed prints them: the mean of the runs' rates, and their deviation.
TEST(Report, samples_per_second_stand_with_their_standard_deviation) {
  const StudyRecord study = planted();
  const Analysis analysis = analysis_of(study);
  const CellResult& cell = analysis.cells[1];
  double mean = 0, squares = 0;
  std::vector<double> rates;
  for (const double tgs : cell.tgs)
    rates.push_back(tgs * static_cast<double>(cell.cell->world_size) / static_cast<double>(cell.cell->seq_length));
  for (const double rate : rates) mean += rate / static_cast<double>(rates.size());
  for (const double rate : rates) squares += (rate - mean) * (rate - mean);
  const double sd = std::sqrt(squares / static_cast<double>(rates.size() - 1));
  ASSERT_GT(sd, 0);
  EXPECT_NEAR(cell.samples_per_s.mean, mean, 1e-9 * mean);
  const std::string page = html_text(study, analysis, {}, "none");
  EXPECT_NE(page.find(formatted("%s &plusmn; %.2g<", speed_text(mean).c_str(), sd)), std::string::npos);
  const Value json = parse_json(json_text(study, analysis), "json");
  EXPECT_NEAR(json.find("cells")->items()[1].find("samples_per_s_sd")->as_double(), sd, 1e-9 * sd);
  EXPECT_NE(column_of(csv_text(analysis), "samples_per_s_sd"), "no such column");
  EXPECT_NE(column_of(csv_text(analysis), "tensor_memory_bytes"), "no such column");
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

TEST(Report, begins_with_the_best_cell_by_how_much_and_how_sure) {
  StudyRecord study = planted();
  const auto answer = [&](size_t line) { return answer_of(study, analysis_of(study)).at(line); };
  const auto expect_in = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect_in(answer(0), "Best by tokens per rank and second: a 0, b 0, ");
  expect_in(answer(0), "n = 6). It is the reference.");
  const std::string behind = change_text(analysis_of(study).cells[1].against.change, Scale::ratio);
  expect_in(answer(1), "All 3 others are shown to be slower; the nearest, a 1, b 0, by " + behind + " (95 % interval ");
  study.cells[0].is_reference = false, study.cells[2].is_reference = true;
  expect_in(answer(0), "Against the reference, a 0, b 1: +10");
  expect_in(answer(0), ": faster.");
  expect_in(html_text(study, analysis_of(study), {}, "none"), "<p class=answer>Best by tokens per rank");
  expect_in(markdown_text(study, analysis_of(study)), "Best by tokens per rank");
  study.cells[1] = cell_of("a=1,b=0", {{"a", "1"}, {"b", "0"}}, 0.01, 7);
  expect_in(answer(1), "Not shown to be worse than it: 1 of the 3 others: a ");
  StudyRecord without = study;
  for (RunRecord& run : without.cells[2].runs) run.state = State::timeout;
  expect_in(answer_of(without, analysis_of(without)).front(), " The reference, a 0, b 1, has no run to compare with.");
  for (CellRecord& cell : study.cells) cell.runs.resize(1);
  expect_in(answer(0), "too few repeats to say whether that is chance");
  for (CellRecord& cell : study.cells) cell.runs[0].state = State::timeout;
  expect_in(answer(0), "No cell has a place");
  for (CellRecord& cell : study.cells) cell.runs.clear();
  expect_in(answer(0), "No run has ended yet.");
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
  EXPECT_NE(page().find("5 cells and the reference a second time (A/A), 6 repeats each; 36 of 36 runs have ended."),
            std::string::npos);
  study.repeats = 100, study.until = 0.03;
  const std::string rule =
      "5 cells and the reference a second time (A/A), up to 100 repeats each, until a difference of 3 % would be "
      "shown; ";
  EXPECT_NE(page().find(rule + "36 of at most 600 runs have ended."), std::string::npos);
  study.enough = 6;
  EXPECT_NE(page().find(rule + "6 were enough, and the study has ended."), std::string::npos);
}

// As a loss with one seed in all repeats: no interval, no floor and no power are read from it.
TEST(Report, repeats_that_are_one_run_say_nothing_of_chance) {
  StudyRecord study = planted();
  study.outcomes = outcomes_of(parse_json(R"("valid_loss")", "outcome"));
  for (CellRecord& cell : study.cells)
    for (RunRecord& run : cell.runs) run.figures["valid_loss"] = {{1}, {cell.levels[0].second == "1" ? 4.0 : 4.1}};
  const auto text = [&] { return markdown_text(study, analysis_of(study)); };
  const std::string same = text();
  for (const char* part : {"to the last digit", "seed_per_repeat", "one run, done again"})
    EXPECT_NE(same.find(part), std::string::npos) << part << "\n" << same;
  for (const char* part :
       {"Noise floor", "To be shown with", "too few repeats", "(95 % interval", "Not shown to be worse"})
    EXPECT_EQ(same.find(part), std::string::npos) << part << "\n" << same;
  for (RunRecord& run : study.cells[1].runs)
    run.figures["valid_loss"].value[0] += 1e-9 * static_cast<double>(run.block);
  EXPECT_EQ(text().find("to the last digit"), std::string::npos);
  for (RunRecord& run : study.cells[1].runs) run.figures["valid_loss"].value[0] = 4.0;
  for (CellRecord& cell : study.cells)
    for (RunRecord& run : cell.runs) run.seed = run.block;
  EXPECT_EQ(text().find("one run"), std::string::npos) << "each has a seed of its own";
}

// Not one whose level reads like it by chance.
TEST(Report, a_factor_is_of_ranks_where_its_levels_and_numbers_of_ranks_go_together) {
  StudyRecord study = planted();
  EXPECT_FALSE(is_of_ranks(study, 0)) << "ranks do not vary";
  study.cells.resize(4);
  for (CellRecord& cell : study.cells) {
    const bool two = cell.levels[0].second == "1";
    cell.world_size = two ? 2 : 1;
    cell.levels = {{"hosts", two ? "many" : "one"}, {"seed", cell.levels[1].second == "1" ? "2" : "1"}};
    cell.id = concat("hosts=", cell.levels[0].second, ",seed=", cell.levels[1].second);
  }
  EXPECT_TRUE(is_of_ranks(study, 0));
  EXPECT_FALSE(is_of_ranks(study, 1));
  const Analysis analysis = analysis_of(study);
  std::string why_not;
  for (const Chart& chart : charts_of(study, analysis, why_not)) {
    if (chart.name != "scaling") continue;
    for (const char* line : {"seed 1", "seed 2"}) EXPECT_NE(chart.svg.find(line), std::string::npos) << line;
    return;
  }
  EXPECT_FALSE(why_not.empty()) << "no chart of scaling";
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
  EXPECT_NE(html_of(ranking_table(study, analysis)).find("<td colspan=7>timeout</td></tr>"), std::string::npos)
      << "the words take the row, and no column is as wide as they are";
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
