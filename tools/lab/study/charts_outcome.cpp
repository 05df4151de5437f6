// Charts of what a study's cells are compared by: its value in every run, and its curves over the run.
#include <algorithm>
#include <cmath>
#include <map>

#include <drivetrain/toolkit/text.h>

#include "study/charts.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

constexpr size_t kMostCurves = 8;
constexpr size_t kMostPoints = 120;  // of a curve
// Each can be told from its neighbours on a light and on a dark page.
constexpr const char* kCurveColours[kMostCurves] = {"#2f7fc1", "#d0662a", "#2a9a78", "#b8413f",
                                                    "#8f4fb0", "#b58a2a", "#6fae3a", "#8a8f98"};

struct Point {
  double x = 0, sum = 0, low = 0, high = 0;
  int runs = 0;
};

Outcome::At axis_of(const Outcome& outcome) {
  using At = Outcome::At;
  if (outcome.at == At::seconds || outcome.at == At::equal_seconds) return At::seconds;
  return outcome.at == At::step ? At::step : At::tokens;
}

// By step: the mean over the repeats that have it, between the least and the largest of them.
std::map<double, Point> curve_of(const CellRecord& cell, const Outcome& outcome) {
  std::map<double, Point> points;
  for (const RunRecord& run : cell.runs) {
    const auto series = run.figures.find(outcome.metric);
    if (run.state != State::ok || series == run.figures.end()) continue;
    const Progressed progress{&run.figures, &run.tokens, &run.step_s};
    const std::vector<double> x = positions_of(progress, series->second, axis_of(outcome));
    const size_t every = (x.size() + kMostPoints - 1) / kMostPoints;
    const std::vector<double> values =
        smoothed(series->second.value, std::max<int64_t>(outcome.window, static_cast<int64_t>(every)));
    for (size_t i = 0; i < x.size(); ++i) {
      if (!std::isfinite(values[i]) || (i + 1) % every != 0) continue;
      Point& point = points[series->second.step[i]];
      point.low = point.runs == 0 ? values[i] : std::min(point.low, values[i]);
      point.high = point.runs == 0 ? values[i] : std::max(point.high, values[i]);
      point.x += x[i], point.sum += values[i], ++point.runs;
    }
  }
  return points;
}

std::vector<size_t> drawn_cells(const Analysis& analysis) {
  std::vector<size_t> cells = analysis.ranking;
  if (cells.size() <= kMostCurves) return cells;
  const auto reference =
      std::find_if(cells.begin(), cells.end(), [&](size_t i) { return analysis.cells[i].cell->is_reference; });
  const size_t last = reference == cells.end() ? cells[kMostCurves - 1] : *reference;
  cells.resize(kMostCurves);
  if (std::find(cells.begin(), cells.end(), last) == cells.end()) cells.back() = last;
  return cells;
}

// What numbers up to `last` are divided by along an axis, and what its title says then: gnuplot's own prefixes print
// too many digits or too few.
std::pair<double, const char*> unit_of(double last) {
  if (last >= 1e10) return {1e9, ", billions"};
  if (last >= 1e7) return {1e6, ", millions"};
  if (last >= 1e4) return {1e3, ", thousands"};
  return {1, ""};
}

}  // namespace

std::string outcome_script(const StudyRecord& study, const Analysis& analysis, const std::vector<size_t>& order) {
  if (analysis.outcomes.empty()) return "";
  std::string means, points, words;
  for (size_t row = 0; row < order.size(); ++row) {
    const CellResult& r = analysis.cells[order[row]];
    const double y = row_of(order, row);
    if (r.values().empty()) {
      const std::string why = r.ok > 0 ? "no " + ranked_by(analysis) : state_text(r);
      words += failure_mark(why, "graph 0.01", y);
      continue;
    }
    if (r.gate == Gate::failed) {
      words += failure_mark("another loss than the reference's: not ranked", "graph 0.01", y);
      continue;
    }
    const Summary& summary = r.summary();
    const Interval interval = summary.confidence.value_or(Interval{summary.mean, summary.mean});
    means += formatted("%.9g %g %.9g %.9g\n", summary.mean, y, interval.low, interval.high);
    for (const double one : r.values()) points += formatted("%.9g %g\n", one, y);
  }
  if (means.empty()) return "";
  return begin_of_rows(study, analysis, order, "outcome") + words +
         "set xrange [*:*]\nset offsets graph 0.03,0.03,0,0\n" + "set xlabel " + quoted(ranked_by(analysis)) + "\n" +
         data_block("means", means) + data_block("points", points) +
         "plot $means using 1:2:3:4 with xerrorbars pt 7 ps 0.8 lc rgb '#2a6fb0' lw 2, $points using 1:2 with points "
         "pt 6 "
         "ps 0.5 lc rgb '#111111'\n";
}

std::string curves_script(const StudyRecord& study, const Analysis& analysis) {
  if (analysis.outcomes.empty()) return "";
  const Outcome& outcome = analysis.outcomes.front();
  const char* axis = axis_of(outcome) == Outcome::At::seconds ? "seconds of training"
                     : axis_of(outcome) == Outcome::At::step  ? "step"
                                                              : "tokens";
  std::string data, bands, lines;
  int number = 0;
  double last = 0;
  for (const size_t i : drawn_cells(analysis)) {
    std::string block;
    for (const auto& [step, point] : curve_of(*analysis.cells[i].cell, outcome)) {
      last = std::max(last, point.x / point.runs);
      block += formatted("%.7g %.7g %.7g %.7g\n", point.x / point.runs, point.sum / point.runs, point.low, point.high);
    }
    if (block.empty()) continue;
    data += data_block(formatted("c%d", number), block);
    bands +=
        formatted("$c%d using ($1/unit):3:4 with filledcurves fc rgb '%s' fs transparent solid 0.2 noborder notitle, ",
                  number, kCurveColours[number]);
    lines += formatted("%s$c%d using ($1/unit):2 with lines lw 1.8 lc rgb '%s' title ", number > 0 ? ", " : "", number,
                       kCurveColours[number]) +
             quoted(tick(label_of(*analysis.cells[i].cell, study)));
    ++number;
  }
  if (data.empty()) return "";
  const auto [unit, words] = unit_of(last);
  return begin_of(1150, 480, "curves") + formatted("unit = %g\n", unit) +
         "set grid y lc rgb '#999999' lw 0.5 dt 3\nset rmargin 4\nset xlabel '" + axis + words + "'\nset ylabel " +
         quoted(outcome.metric) + "\nset key right top\n" + data + "plot " + bands + lines + "\n";
}

}  // namespace drivetrain::study
