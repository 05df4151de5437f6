// Charts by gnuplot, as SVG. In the page its colours become the page's, so that a chart is dark where the page is.
#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "study/charts.h"
#include "study/process.h"
#include "study/report.h"

namespace drivetrain::study {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text)
    if (c == '"' || c == '\\')
      result += std::string("\\") + c;
    else if (c == '\n')
      result += "\\n";
    else if (static_cast<unsigned char>(c) >= ' ')
      result += c;
  return result + "\"";
}

std::string tick(const std::string& text, size_t width) {
  std::istringstream words(printable(text));
  std::string lines;
  size_t used = 0;
  for (std::string word; words >> word; used += word.size()) {
    const bool fits = used + 1 + word.size() <= width;
    if (!lines.empty()) lines += fits ? ' ' : '\n', used = fits ? used + 1 : 0;
    lines += word;
  }
  return lines;
}

std::string failure_mark(const std::string& words, const std::string& x, double y) {
  return "set label " + quoted("  " + tick(words, 110)) + " at " + x +
         formatted(", first %g point pt 2 ps 1 lc rgb '#b04a2a' tc rgb '#b04a2a'\n", y);
}

std::string begin_of(int width, int height, const std::string& name) {
  return formatted("set term svg size %d,%d dynamic noenhanced font 'sans-serif,13' name '%s'\n", width, height,
                   name.c_str()) +
         "set border 3 lc rgb '#111111'\nset tics nomirror out textcolor rgb '#111111'\nset key textcolor rgb "
         "'#111111'\n"
         "set grid x lc rgb '#999999' lw 0.5 dt 3\nset xlabel textcolor rgb '#111111'\nset ylabel textcolor rgb "
         "'#111111'\n";
}

std::string data_block(const std::string& name, const std::string& data) {
  return data.empty() ? "" : "$" + name + " << EOD\n" + data + "EOD\n";
}

// gnuplot takes the label of a tick for a format.
static std::string as_format(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '%' ? std::string("%%") : std::string(1, c);
  return result;
}

std::string begin_of_rows(const StudyRecord& study, const Analysis& analysis, const std::vector<size_t>& order,
                          const std::string& name) {
  std::string ticks;
  size_t lines = 1;
  for (size_t i = 0; i < order.size(); ++i) {
    const CellResult& cell = analysis.cells[order[i]];
    const std::string label = tick(label_of(*cell.cell, study));
    lines = std::max({lines, lines_of(label), cell.ok == 0 ? lines_of(tick(state_text(cell), 110)) : 1});
    ticks += (i > 0 ? "," : "") + quoted(as_format(label)) + formatted(" %g", row_of(order, i));
  }
  const int row = 26 + 20 * static_cast<int>(lines - 1);
  return begin_of(1150, 90 + row * static_cast<int>(order.size()), name) + "set ytics (" + ticks + ")\n" +
         formatted("set yrange [0.3:%g]\nset xrange [0:*]\nset key off\n", static_cast<double>(order.size()) + 0.7);
}

// Bars from the bottom: the last cell of `order` is at y = 1.
std::string speed_script(const StudyRecord& study, const Analysis& analysis, const std::vector<size_t>& order) {
  std::string bars, bad, points;
  for (size_t row = 0; row < order.size(); ++row) {
    const CellResult& r = analysis.cells[order[row]];
    const double y = row_of(order, row);
    if (r.ok == 0) {
      bad += failure_mark(state_text(r), "graph 0.01", y);
      continue;
    }
    if (r.gate == Gate::failed) {  // its speed is that of something else
      bad += failure_mark("another loss than the reference's: not ranked", "graph 0.01", y);
      continue;
    }
    const Interval interval = r.speed.confidence.value_or(Interval{r.speed.mean, r.speed.mean});
    bars += formatted("%g %g 0 %g %g %g %g %g\n", r.speed.mean, y, r.speed.mean, y - 0.35, y + 0.35,
                      std::max(0.0, interval.low), interval.high);
    for (const double one : r.tgs) points += formatted("%g %g\n", one, y);
  }
  std::string script = begin_of_rows(study, analysis, order, "speed");
  script += "set xlabel 'tokens per rank and second (TGS)'\n";
  script += data_block("bars", bars) + bad + data_block("points", points);
  std::vector<std::string> plots;
  if (!bars.empty())
    plots.push_back(
        "$bars using 1:2:3:4:5:6 with boxxyerror fc rgb '#2a6fb0' fs transparent solid 0.45 border lc rgb '#2a6fb0'");
  if (!bars.empty()) plots.push_back("$bars using 1:2:7:8 with xerrorbars pt 0 lc rgb '#111111' lw 1.5");
  if (!points.empty()) plots.push_back("$points using 1:2 with points pt 7 ps 0.35 lc rgb '#111111'");
  if (plots.empty()) plots.push_back("NaN notitle");  // nothing but words
  return script + "plot " + join(plots, ", ") + "\n";
}

namespace {

constexpr double kPlotTime = 60;  // seconds for a chart

// The SVG that gnuplot prints for a script; "" and the reason if it cannot.
std::string drawn(const std::string& script, std::string& why_not) {
  ProcessStart start;
  start.command = {"gnuplot"}, start.input = script, start.timeout_s = kPlotTime, start.stops_by_second = false;
  const ProcessEnd end = run_process(start);
  const size_t begin = end.out.find("<svg");
  if (end.code == 0 && begin != std::string::npos) return end.out.substr(begin);
  why_not = end.code == 127
                ? "gnuplot is not installed: `apt-get install gnuplot-nox`, then `drivetrain study FILE --resume`"
            : end.timed_out ? "gnuplot did not end in time"
                            : "gnuplot failed: " + first_line(end.err);
  return "";
}

// Speeds as the Pareto mark goes by them.
std::string memory_script(const StudyRecord& study, const Analysis& analysis) {
  std::string all, front, labels;
  std::vector<std::pair<double, double>> pareto;
  int number = 0;
  for (const CellResult& r : analysis.cells) {
    if (r.ok == 0 || r.cell->is_noise || r.gate == Gate::failed || r.peak_bytes <= 0) continue;
    all += formatted("%g %g ", r.peak_bytes / 1e6, r.standing) + quoted(label_of(*r.cell, study)) + "\n";
    if (r.is_pareto) {
      pareto.emplace_back(r.peak_bytes / 1e6, r.standing);
      if (++number <= 12)
        labels += "set label " + quoted(tick(label_of(*r.cell, study))) +
                  formatted(" at %g,%g offset 0.6,0.6 tc rgb '#111111'\n", r.peak_bytes / 1e6, r.standing);
    }
  }
  if (all.empty()) return "";
  std::sort(pareto.begin(), pareto.end());
  for (const auto& [x, y] : pareto) front += formatted("%g %g\n", x, y);
  std::string script = begin_of(1150, 480, "memory") + labels;
  script +=
      "set xlabel 'largest rank: peak memory of the process, MB'\nset key off\nset offsets graph "
      "0.05,0.35,0.1,0.05\nset grid y lc rgb '#999999' lw 0.5 dt 3\n";
  script += study.trim > 0 ? "set ylabel 'TGS by the trimmed differences'\n" : "set ylabel 'TGS'\n";
  script += data_block("all", all) + data_block("front", front);
  script += "plot $all using 1:2 with points pt 7 ps 0.7 lc rgb '#2a6fb0'";
  if (!front.empty()) script += ", $front using 1:2 with linespoints pt 6 ps 1.2 lc rgb '#2a9050' lw 1.5";
  return script + "\n";
}

// Tokens per second of all ranks over ranks, by what else the cells have in common; "" if the world size never varies.
std::string scaling_script(const StudyRecord& study, const Analysis& analysis) {
  std::map<std::string, std::map<int64_t, double>> lines;
  std::set<int64_t> worlds;
  std::vector<size_t> lines_by;
  for (size_t f = 0; !study.cells.empty() && f < study.cells.front().levels.size(); ++f)
    if (varies(study, f) && !is_of_ranks(study, f)) lines_by.push_back(f);
  for (const CellResult& r : analysis.cells) {
    if (r.ok == 0 || r.cell->is_noise || r.gate == Gate::failed || !is_all_levels(*r.cell)) continue;
    std::string others;
    for (const size_t f : lines_by) {
      const auto& [factor, level] = r.cell->levels[f];
      others += (others.empty() ? "" : ", ") + factor + " " + level;
    }
    lines[others.empty() ? "measured" : others][r.cell->world_size] =
        r.speed.mean * static_cast<double>(r.cell->world_size);
    worlds.insert(r.cell->world_size);
  }
  std::erase_if(lines, [](const auto& line) { return line.second.size() < 2; });
  if (worlds.size() < 2 || lines.empty()) return "";
  std::string script = begin_of(1150, 480, "scaling"), plots;
  script +=
      "set xlabel 'ranks'\nset ylabel 'tokens per second of all ranks'\nset key left top\nset grid y lc rgb '#999999' "
      "lw 0.5 dt 3\nset yrange [0:*]\n";
  int number = 0;
  for (const auto& [name, line] : lines) {
    std::string data, ideal;
    const double per_rank = line.begin()->second / static_cast<double>(line.begin()->first);
    for (const auto& [world, tokens] : line) {
      data += formatted("%lld %g\n", static_cast<long long>(world), tokens);
      ideal += formatted("%lld %g\n", static_cast<long long>(world), per_rank * static_cast<double>(world));
    }
    script += formatted("$d%d << EOD\n", number) + data + formatted("EOD\n$i%d << EOD\n", number) + ideal + "EOD\n";
    plots += formatted("%s$d%d using 1:2 with linespoints lc rgb '#2a6fb0' pt %d lw 1.5 title ", number > 0 ? ", " : "",
                       number, 4 + number) +
             quoted(tick(name)) + formatted(", $i%d using 1:2 with lines lc rgb '#999999' dt 2 ", number) +
             (number == 0 ? "title 'ideal'" : "notitle");
    if (++number == 12) break;
  }
  return script + "plot " + plots + "\n";
}

}  // namespace

std::string for_page(std::string svg) {
  const std::vector<std::pair<std::vector<int>, const char*>> colours = {{{17, 17, 17}, "var(--ink)"},
                                                                         {{42, 111, 176}, "var(--bar)"},
                                                                         {{176, 74, 42}, "var(--bad)"},
                                                                         {{153, 153, 153}, "var(--grid)"},
                                                                         {{42, 144, 80}, "var(--good)"}};
  for (const auto& [c, now] : colours)
    for (const std::string& old :
         {formatted("rgb(%3d, %3d, %3d)", c[0], c[1], c[2]), formatted("rgb(%d,%d,%d)", c[0], c[1], c[2])})
      for (size_t at = 0; (at = svg.find(old, at)) != std::string::npos; at += std::string(now).size())
        svg.replace(at, old.size(), now);
  return svg;
}

std::vector<Chart> charts_of(const StudyRecord& study, const Analysis& analysis, std::string& why_not) {
  std::vector<size_t> order = analysis.ranking;
  for (size_t i = 0; i < analysis.cells.size(); ++i)
    if (std::find(order.begin(), order.end(), i) == order.end() &&
        (analysis.cells[i].begun || analysis.cells[i].state == State::refused))
      order.push_back(i);
  if (order.empty()) {
    why_not = "no run has ended yet";
    return {};
  }
  std::vector<Chart> charts = {{"outcome", "By " + ranked_by(analysis), outcome_script(study, analysis, order)},
                               {"curves", "Curves", curves_script(study, analysis)},
                               {"speed", "Speed", speed_script(study, analysis, order)},
                               {"memory", "Speed against memory", memory_script(study, analysis)},
                               {"scaling", "Scaling", scaling_script(study, analysis)},
                               {"steps", "Step times", steps_script(study, analysis, order)},
                               {"parts", "Where a step's time goes", parts_script(study, analysis, order)}};
  std::erase_if(charts, [](const Chart& chart) { return chart.svg.empty(); });
  for (Chart& chart : charts) chart.svg = drawn(chart.svg, why_not);
  std::erase_if(charts, [](const Chart& chart) { return chart.svg.empty(); });
  return charts;
}

}  // namespace drivetrain::study
