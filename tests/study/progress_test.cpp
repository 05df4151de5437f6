// What a study shows while it runs: how far it is, each cell's state, the run at hand. On a terminal:
// study_runs_test.py.
#include "study/progress.h"

#include <gtest/gtest.h>

#include <drivetrain/toolkit/text.h>

namespace drivetrain::study {
namespace {

std::string joined(const Progress& progress, size_t width = 100) {
  std::string text;
  for (const std::string& line : progress.lines(width)) text += line + "\n";
  return text;
}

TEST(Progress, shows_counts_cells_time_left_and_the_run_at_hand) {
  Progress progress("zero", -1);
  EXPECT_TRUE(progress.lines(80).empty()) << "nothing has begun";
  progress.begin_study(4, 12);
  progress.begin_run("a=1", 0), progress.tick(1, 3);
  EXPECT_NE(joined(progress).find("a=1  repeat 1  step 3"), std::string::npos) << joined(progress);
  EXPECT_EQ(progress.time_left(), "") << "no run has ended yet";
  progress.end_run(10), progress.ended(0, State::ok);
  progress.end_run(10), progress.ended(0, State::ok);
  progress.end_run(10), progress.ended(1, State::oom);
  progress.ended(2, State::refused);
  const std::string text = joined(progress);
  for (const char* part : {"zero", "33 %", "4 of 12 runs", "about 1 min 20 s left", "ok 2  oom 1  refused 1", "2MR."})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Progress, a_study_that_can_end_by_itself_has_at_most_so_many_runs) {
  Progress progress("until", -1);
  progress.begin_study(3, 12, true);
  progress.end_run(10), progress.ended(0, State::ok);
  for (const char* part : {"1 of at most 12 runs", "at most about 1 min 50 s left"})
    EXPECT_NE(joined(progress).find(part), std::string::npos) << part << "\n" << joined(progress);
}

TEST(Progress, no_line_is_wider_than_the_terminal_and_many_cells_are_cut) {
  Progress progress(std::string(100, 'n'), -1);
  progress.begin_study(2000, 2000);
  progress.begin_run(std::string(300, 'c') + "\n\033[2J", 0);
  const std::vector<std::string> lines = progress.lines(60);
  EXPECT_LT(lines.size(), 12u);
  for (const std::string& line : lines) {
    EXPECT_LT(line.size(), 60u);
    EXPECT_EQ(line.find_first_of("\n\033"), std::string::npos);
  }
}

TEST(Progress, durations_are_short) {
  EXPECT_EQ(duration_text(44.6), "45 s");
  EXPECT_EQ(duration_text(192), "3 min 12 s");
  EXPECT_EQ(duration_text(7500), "2 h 05 min");
}

}  // namespace
}  // namespace drivetrain::study
