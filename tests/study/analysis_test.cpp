// What a study says of planted runs: a slowdown is found, the reference against itself is not, a wrong loss is gated.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "study/charts.h"
#include "study/measure.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

constexpr int kBlocks = 6;

// Noise of 1 % that is the same everywhere: a fixed sequence.
double noise(int i) { return 0.01 * (std::fmod(static_cast<double>(i) * 0.6180339887, 1.0) - 0.5) * 2; }

CellRecord cell_of(const std::string& id, const std::vector<std::pair<std::string, std::string>>& levels, double step_s,
                   int first_noise, double loss = 5) {
  CellRecord cell;
  cell.id = id, cell.levels = levels, cell.world_size = 2, cell.batch = 8, cell.seq_length = 32;
  cell.shape = {2, 64, 2, 2, 32, 256, 256, 32, 120576, false}, cell.model_flops = 7e5;
  for (int block = 0; block < kBlocks; ++block) {
    RunRecord run;
    run.block = block, run.state = State::ok, run.wall_s = 1, run.end = Value::object();
    const double drift = 1 + 0.05 * block;  // the machine becomes slower from block to block
    for (int step = 0; step < 12; ++step) {
      const double first = step == 0 ? 10 : 1;
      run.step_s.push_back(step_s * first * drift * (1 + noise(first_noise + block)));
      run.loss.push_back(loss - 0.01 * step), run.tokens.push_back(256);
    }
    cell.runs.push_back(run);
  }
  return cell;
}

StudyRecord planted() {
  StudyRecord study;
  study.name = "planted", study.gate = 1e-3, study.repeats = kBlocks, study.warmup.first = 2;
  study.environment = Value::object(), study.peak_tflops = 1;
  study.cells.push_back(cell_of("a=0,b=0", {{"a", "0"}, {"b", "0"}}, 0.01, 0));
  study.cells.push_back(cell_of("a=1,b=0", {{"a", "1"}, {"b", "0"}}, 0.0103, 7));
  study.cells.push_back(cell_of("a=0,b=1", {{"a", "0"}, {"b", "1"}}, 0.02, 13));
  study.cells.push_back(cell_of("a=1,b=1", {{"a", "1"}, {"b", "1"}}, 0.0206, 23));
  study.cells.push_back(cell_of("wrong", {{"a", "2"}, {"b", "0"}}, 0.005, 29, 5.1));
  study.cells.push_back(cell_of("A-A", {{"a", "0"}, {"b", "0"}}, 0.01, 31));
  study.cells.front().is_reference = true, study.cells.back().is_noise = true;
  return study;
}

TEST(Analysis, a_slowdown_of_three_percent_is_found_and_an_a_a_pair_is_not) {
  const StudyRecord study = planted();
  const Analysis analysis = analysis_of(study);
  const Comparison& slower = analysis.cells[1].against;
  EXPECT_EQ(slower.n, kBlocks);
  EXPECT_EQ(slower.verdict, Verdict::slower);
  EXPECT_NEAR(slower.change, -0.03, 0.01);
  EXPECT_LT(slower.interval->high, 0);
  EXPECT_EQ(analysis.cells[5].against.verdict, Verdict::no_difference);
  EXPECT_LT(*analysis.noise_floor, 0.03);
  // Without blocks the drift of the machine hides it.
  EXPECT_GT(*slower.welch, 0.05);
}

TEST(Analysis, the_repeats_that_a_difference_needs_follow_from_the_a_a_pair) {
  StudyRecord study = planted();
  const Analysis analysis = analysis_of(study);
  ASSERT_TRUE(analysis.sensitivity);
  EXPECT_EQ(analysis.sensitivity->n, kBlocks);
  EXPECT_DOUBLE_EQ(analysis.sensitivity->level, 0.05 / 5);
  EXPECT_LT(analysis.sensitivity->sd, 0.02);
  EXPECT_EQ(analysis.sensitivity->needed(analysis.sensitivity->shown() * 1.001), kBlocks);
  EXPECT_GT(analysis.sensitivity->needed(0.001), 100);
  bool told = false;
  for (const std::string& line : ranking_lines(study, analysis))
    told |= line.starts_with("Repeats: the A/A pair varies");
  EXPECT_TRUE(told);
  study.cells.pop_back();
  EXPECT_FALSE(analysis_of(study).sensitivity) << "without a noise cell";
}

TEST(Analysis, what_is_set_aside_costs_sensitivity) {
  StudyRecord study = planted();
  study.trim = 0.2;
  const Analysis analysis = analysis_of(study);
  ASSERT_TRUE(analysis.sensitivity);
  Sensitivity without = *analysis.sensitivity;
  EXPECT_DOUBLE_EQ(without.trim, 0.2);
  without.trim = 0;
  EXPECT_GT(analysis.sensitivity->shown(), without.shown() * 1.1);
  EXPECT_GT(analysis.sensitivity->surely_shown(), analysis.sensitivity->shown());
}

// A study of two cells and the A/A pair that looks after every block from the sixth on, until it would show 3 %: a
// true difference of 3 % is found, by the corrected test, as often as a study of so many repeats should find it.
TEST(Analysis, a_study_that_ends_by_its_own_repeats_finds_what_it_was_to_find) {
  std::mt19937 numbers(11);
  std::normal_distribution<double> normal(0, 0.02 / std::sqrt(2));
  for (const double trim : {0.0, 0.2}) {
    constexpr int kTrials = 300;
    int found = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      std::vector<double> pair, other;
      for (int n = 1; n <= 100; ++n) {
        const double reference = normal(numbers);
        pair.push_back(normal(numbers) - reference), other.push_back(std::log(1.03) + normal(numbers) - reference);
        if (n < 6) continue;
        if (Sensitivity{paired_of(pair, trim).sd, n, 0.025, trim}.surely_shown() <= 0.03) break;
      }
      found += *paired_of(other, trim).p < 0.025;
    }
    EXPECT_GE(found, 0.8 * kTrials) << trim;
  }
}

// One block of six is made useless by somebody else: a mean over all of them no longer shows the slowdown.
TEST(Analysis, blocks_that_are_set_aside_do_not_decide) {
  StudyRecord study = planted();
  study.cells[1].runs[2].step_s.assign(12, 0.1);
  EXPECT_EQ(analysis_of(study).cells[1].against.verdict, Verdict::no_difference);
  study.trim = 0.2;
  const Analysis analysis = analysis_of(study);
  EXPECT_EQ(analysis.cells[1].against.verdict, Verdict::slower);
  EXPECT_NEAR(analysis.cells[1].against.change, -0.03, 0.015);
}

TEST(Analysis, a_faster_wrong_run_is_marked_and_not_ranked) {
  const StudyRecord study = planted();
  const Analysis analysis = analysis_of(study);
  EXPECT_EQ(analysis.cells[4].gate, Gate::failed);
  EXPECT_EQ(analysis.cells[4].loss_step, 12);
  EXPECT_FALSE(analysis.cells[4].is_pareto);
  EXPECT_EQ(analysis.ranking.size(), 4u);
  EXPECT_EQ(study.cells[analysis.ranking.front()].id, "a=0,b=0");
  bool told = false;
  for (const std::string& line : ranking_lines(study, analysis))
    told |= line.starts_with("Not ranked: wrong computes something else");
  EXPECT_TRUE(told);
}

TEST(Analysis, losses_of_another_batch_are_not_compared) {
  StudyRecord study = planted();
  study.cells[4].batch = 16;
  EXPECT_EQ(analysis_of(study).cells[4].gate, Gate::not_comparable);
}

TEST(Analysis, effects_are_those_that_were_planted) {
  const StudyRecord study = planted();
  const Analysis analysis = analysis_of(study);
  ASSERT_EQ(analysis.effects.size(), 2u);
  EXPECT_EQ(analysis.effects[0].what, "a 1 instead of 0");
  EXPECT_EQ(analysis.effects[0].pairs, 2);
  EXPECT_NEAR(analysis.effects[0].change, -0.03, 0.01);
  EXPECT_NEAR(analysis.effects[1].change, -0.5, 0.01);
  ASSERT_EQ(analysis.interactions.size(), 1u);
  EXPECT_LT(std::abs(analysis.interactions[0].change), 0.02);
}

TEST(Analysis, a_cell_without_figures_takes_no_part_and_keeps_its_state) {
  StudyRecord study = planted();
  for (RunRecord& run : study.cells[3].runs) {
    run.state = State::oom, run.reason = "out of memory";
    run.end.set("phase", "attach"), run.end.set("bytes", 1000000);
  }
  const Analysis analysis = analysis_of(study);
  EXPECT_EQ(analysis.cells[3].state, State::oom);
  EXPECT_EQ(state_text(analysis.cells[3]), "out of memory (attach, 1.0 MB wanted)");
  EXPECT_EQ(analysis.effects[0].pairs, 1);
  EXPECT_TRUE(analysis.interactions.empty());
}

TEST(Window, a_fixed_and_a_steady_begin) {
  const std::vector<double> steps = {9, 5, 3, 1.02, 1, 1.01, 0.99, 1, 1, 1.01};
  Warmup warmup;
  EXPECT_EQ(steady_window(steps, warmup).first, 3u);
  warmup.steady = true, warmup.first = 0, warmup.window = 3, warmup.tolerance = 0.05;
  EXPECT_EQ(steady_window(steps, warmup).first, 2u);  // the median of 3, 1.02, 1
  EXPECT_FALSE(steady_window(steps, warmup).never);
  const std::vector<double> falling = {64, 32, 16, 8, 4, 2, 1, 0.5};
  EXPECT_TRUE(steady_window(falling, warmup).never);
  EXPECT_EQ(steady_window(falling, warmup).first, 4u);
}

TEST(EndOf, exit_codes_become_states_with_rank_signal_phase_and_bytes) {
  const auto state = [](const Value& line) { return line.find("state")->as_string(); };
  EXPECT_EQ(state(end_of({.code = 0}, "", false)), "ok");
  EXPECT_EQ(state(end_of({.code = 7}, "drivetrain: error: step 2: loss is nan", false)), "nan");
  EXPECT_EQ(state(end_of({.code = 143, .timed_out = true}, "", false)), "timeout");
  EXPECT_EQ(state(end_of({.code = 137, .stopped = true}, "", false)), "skipped");
  EXPECT_EQ(state(end_of({.code = 137}, "", true)), "oom");
  const Value crash = end_of({.code = 139}, "drivetrain launch: rank 1 failed first: killed by signal 11", false);
  EXPECT_EQ(state(crash), "crashed");
  EXPECT_EQ(crash.find("rank")->as_int(), 1);
  EXPECT_EQ(crash.find("signal")->as_int(), 11);
  const Value oom =
      end_of({.code = 4},
             "drivetrain: error: in data_parallel/zero, hook attach, rank 1: communicator/local: cannot map "
             "179408896 bytes of shared memory",
             false);
  EXPECT_EQ(state(oom), "oom");
  EXPECT_EQ(oom.find("phase")->as_string(), "attach");
  EXPECT_EQ(oom.find("bytes")->as_int(), 179408896);
}

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

TEST(Window, the_first_steps_alone_are_measured_by_their_mean) {
  Warmup warmup;
  warmup.only_first = 2;
  const Window window = steady_window({4, 2, 1, 1}, warmup);
  EXPECT_EQ(window.first, 0u);
  EXPECT_EQ(window.last, 2u);
  EXPECT_FALSE(window.never);
  EXPECT_DOUBLE_EQ(run_figure({4, 2}, warmup), 3);
  EXPECT_DOUBLE_EQ(run_figure({4, 2, 3}, {}), 3);
  warmup = {}, warmup.quantile = 0;
  EXPECT_DOUBLE_EQ(run_figure({4, 2, 3}, warmup), 2);
  EXPECT_TRUE(steady_window({4}, warmup).never);
}

}  // namespace
}  // namespace drivetrain::study
