// Charts of times: how the steps of a cell are spread, and which parts they have.
#include <algorithm>
#include <iterator>

#include <drivetrain/toolkit/text.h>

#include "study/charts.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

// Of kPartOrder; each can be told from its neighbours on a light and on a dark page.
constexpr const char* kColours[] = {"#8a8f98", "#b58a2a", "#2f7fc1", "#c05a9a", "#8f4fb0",
                                    "#2a9a78", "#6fae3a", "#d0662a", "#b8413f"};

}  // namespace

// From the tenth to the ninetieth percentile, the box the two middle quarters, a line at the median.
std::string steps_script(const StudyRecord& study, const Analysis& analysis, const std::vector<size_t>& order) {
  std::string boxes, medians, whiskers;
  std::vector<size_t> measured;
  for (const size_t i : order)
    if (!analysis.cells[i].steps.empty()) measured.push_back(i);
  if (measured.empty()) return "";
  for (size_t row = 0; row < measured.size(); ++row) {
    const std::vector<double>& steps = analysis.cells[measured[row]].steps;
    const auto ms = [&](double q) { return 1e3 * quantile_of(steps, q); };
    const double y = row_of(measured, row);
    boxes += formatted("%g %g %g %g %g %g\n", ms(0.5), y, ms(0.25), ms(0.75), y - 0.28, y + 0.28);
    medians += formatted("%g %g 0 %g\n", ms(0.5), y - 0.28, 0.56);
    whiskers += formatted("%g %g %g %g\n", ms(0.5), y, ms(0.1), ms(0.9));
  }
  return begin_of_rows(study, analysis, measured, "steps") +
         "set xrange [0<*:*]\n"
         "set xlabel 'milliseconds of a measured step: median, quarters, 10 % and 90 %'\n" +
         data_block("boxes", boxes) + data_block("medians", medians) + data_block("whiskers", whiskers) +
         "plot $whiskers using 1:2:3:4 with xerrorbars pt 0 lc rgb '#111111' lw 1.2, $boxes using 1:2:3:4:5:6 with "
         "boxxyerror fc rgb '#2a6fb0' fs transparent solid 0.45 border lc rgb '#2a6fb0', $medians using 1:2:3:4 with "
         "vectors nohead lc rgb '#111111' lw 2\n";
}

// One bar per cell as long as its median step, cut into parts; communication, which lies in them, as a line below.
std::string parts_script(const StudyRecord& study, const Analysis& analysis, const std::vector<size_t>& order) {
  std::vector<size_t> measured;
  for (const size_t i : order)
    if (!analysis.cells[i].part_shares.empty()) measured.push_back(i);
  if (measured.empty()) return "";
  std::string script = begin_of_rows(study, analysis, measured, "parts"), plots, waits;
  script += "set xlabel 'milliseconds of the median step, means over ranks; thin line: in communication'\n";
  // Above the whole picture: beside long labels the plot is too narrow, and gnuplot leaves names out.
  script += "set tmargin 4\nset key at screen 0.99,0.98 right top horizontal maxcols 5 samplen 1 ";
  script += "textcolor rgb '#111111'\n";
  std::vector<double> from(measured.size());
  for (size_t part = 0; part < std::size(kPartOrder); ++part) {
    std::string data;
    for (size_t row = 0; row < measured.size(); ++row) {
      const CellResult& r = analysis.cells[measured[row]];
      const auto share = r.part_shares.find(kPartOrder[part]);
      if (share == r.part_shares.end()) continue;
      const double begin = from[row], end = begin + 1e3 * r.step_median * share->second, y = row_of(measured, row);
      data += formatted("%g %g %g %g %g %g\n", begin, y, begin, end, y - 0.2, y + 0.36);
      from[row] = end;
    }
    if (data.empty()) continue;
    script += data_block(kPartOrder[part], data);
    plots +=
        concat(plots.empty() ? "plot " : ", ", "$", kPartOrder[part], " using 1:2:3:4:5:6 with boxxyerror fc rgb '",
               kColours[part], "' fs solid 0.85 noborder title ", quoted(kPartOrder[part]));
  }
  for (size_t row = 0; row < measured.size(); ++row) {
    const CellResult& r = analysis.cells[measured[row]];
    waits += formatted("0 %g %g 0\n", row_of(measured, row) - 0.3, 1e3 * r.step_median * r.communication_share);
  }
  return script + data_block("waits", waits) + plots +
         ", $waits using 1:2:3:4 with vectors nohead lc rgb '#111111' lw 3 notitle\n";
}

}  // namespace drivetrain::study
