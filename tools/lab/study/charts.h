// What the charts of a report share: texts of gnuplot scripts.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "study/analysis.h"
#include "study/report.h"

namespace drivetrain::study {

std::string quoted(const std::string& text);  // what gnuplot takes in double quotes
// Long labels take several lines, broken between words; nothing of them is left out.
std::string tick(const std::string& text, size_t width = 64);
inline size_t lines_of(const std::string& tick) {
  return 1 + static_cast<size_t>(std::count(tick.begin(), tick.end(), '\n'));
}
// A cross with words in the row of a cell that has nothing to be drawn. `x`: where, in gnuplot's words.
std::string failure_mark(const std::string& words, const std::string& x, double y);
std::string begin_of(int width, int height, const std::string& name);
// `$NAME << EOD ...`; nothing of no data.
std::string data_block(const std::string& name, const std::string& data);
// Rows from the bottom for the cells of `order`, the first one on top: height, labels, range.
std::string begin_of_rows(const StudyRecord& study, const Analysis& analysis, const std::vector<size_t>& order,
                          const std::string& name);
inline double row_of(const std::vector<size_t>& order, size_t index) {
  return static_cast<double>(order.size() - index);
}

std::string speed_script(const StudyRecord& study, const Analysis& analysis, const std::vector<size_t>& order);

// charts_outcome.cpp; "" where the study has no outcome, or no run has it.
std::string outcome_script(const StudyRecord& study, const Analysis& analysis, const std::vector<size_t>& order);
std::string curves_script(const StudyRecord& study, const Analysis& analysis);

// charts_time.cpp; "" where nothing was measured. `order`: cells, the first one on top.
std::string steps_script(const StudyRecord& study, const Analysis& analysis, const std::vector<size_t>& order);
std::string parts_script(const StudyRecord& study, const Analysis& analysis, const std::vector<size_t>& order);

}  // namespace drivetrain::study
