#include "planner/scaling_chart.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

constexpr double kWidth = 760, kLeft = 64, kRight = 24, kTop = 16, kPlot = 340, kLine = 18;
constexpr const char* kColours[] = {"#2a7fc8", "#cc5f1f", "#2a9a55", "#9a5fc5", "#c83e70", "#8f7d25"};

struct Line {
  std::string name;  // what its rows share
  std::vector<const RowResult*> rows;
};

std::string without_ranks(const PublishedRow& row) {
  std::string label = row.label;
  const std::string ranks = concat(row.ranks, row.ranks == 1 ? " rank, " : " ranks, ");
  if (const size_t at = label.find(ranks); at != std::string::npos) label.erase(at, ranks.size());
  return label;
}

// Lines of at least two rows, by their ranks.
std::vector<Line> lines_of(const TableResult& result) {
  std::vector<Line> lines;
  for (const RowResult& row : result.rows) {
    if (!row.tgs_error) continue;
    const auto same = [&](const Line& line) { return same_but_ranks(*line.rows.front()->row, *row.row); };
    const auto found = std::find_if(lines.begin(), lines.end(), same);
    if (found == lines.end())
      lines.push_back({without_ranks(*row.row), {&row}});
    else
      found->rows.push_back(&row);
  }
  std::erase_if(lines, [](const Line& line) { return line.rows.size() < 2; });
  for (Line& line : lines)
    std::sort(line.rows.begin(), line.rows.end(),
              [](const auto* a, const auto* b) { return a->row->ranks < b->row->ranks; });
  return lines;
}

class Chart {
 public:
  explicit Chart(const std::vector<Line>& lines) : lines_(lines) {
    for (const Line& line : lines)
      for (const RowResult* row : line.rows) {
        ranks_.insert(row->row->ranks);
        most_ = std::max({most_, *row->row->tgs, row->forecast.time.tgs});
      }
    most_ = std::ceil(1.05 * most_ / 500) * 500;
  }

  std::string text(const std::string& title) {
    const double height = kTop + kPlot + 44 + kLine * static_cast<double>(lines_.size() + 1);
    std::string svg = formatted(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"13\">\n"
        "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
        kWidth, height, title.c_str());
    svg += axes();
    for (size_t i = 0; i < lines_.size(); ++i) svg += drawn(lines_[i], kColours[i % std::size(kColours)], i);
    return svg +
           words(kLeft, kTop + kPlot + 54 + kLine * static_cast<double>(lines_.size()), "start", "#555",
                 "lines: planned; rings: printed; dashed: ideal, as planned with the fewest ranks") +
           "</svg>\n";
  }

 private:
  double x(int64_t ranks) const {
    const double low = std::log2(static_cast<double>(*ranks_.begin()));
    const double high = std::log2(static_cast<double>(*ranks_.rbegin()));
    return kLeft + 12 +
           (kWidth - kLeft - kRight - 24) * (std::log2(static_cast<double>(ranks)) - low) / std::max(high - low, 1e-9);
  }
  double y(double tgs) const { return kTop + kPlot * (1 - tgs / most_); }
  static std::string words(double x, double y, const char* anchor, const char* colour, const std::string& text) {
    return formatted("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", x, y, anchor, colour,
                     text.c_str());
  }
  std::string axes() const {
    std::string svg;
    for (int i = 0; i <= 5; ++i) {
      const double tgs = most_ * i / 5;
      svg += formatted("<path d=\"M%g %.1fH%g\" stroke=\"#ccc\"/>\n", kLeft, y(tgs), kWidth - kRight);
      svg += words(kLeft - 6, y(tgs) + 4, "end", "#111", formatted("%g", tgs));
    }
    for (const int64_t ranks : ranks_) svg += words(x(ranks), kTop + kPlot + 17, "middle", "#111", concat(ranks));
    return svg + words(kLeft, kTop + kPlot + 36, "start", "#111", "ranks; tokens per rank and second");
  }
  std::string drawn(const Line& line, const char* colour, size_t number) const {
    std::string path, rings;
    for (const RowResult* row : line.rows) {
      const double at = x(row->row->ranks);
      path += formatted("%s%.1f %.1f", path.empty() ? "M" : "L", at, y(row->forecast.time.tgs));
      rings += formatted("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"none\" stroke=\"%s\">", at, y(*row->row->tgs),
                         colour) +
               formatted("<title>%lld ranks: printed %.0f, planned %.0f, scaling %.0f %%</title></circle>\n",
                         static_cast<long long>(row->row->ranks), *row->row->tgs, row->forecast.time.tgs,
                         100 * row->scaling);
    }
    const double ideal = y(line.rows.front()->forecast.time.tgs);
    return formatted("<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", path.c_str(), colour) +
           formatted("<path d=\"M%.1f %.1fH%.1f\" stroke=\"%s\" stroke-dasharray=\"4 4\" opacity=\"0.6\"/>\n",
                     x(line.rows.front()->row->ranks), ideal, x(line.rows.back()->row->ranks), colour) +
           rings + words(kLeft, kTop + kPlot + 54 + kLine * static_cast<double>(number), "start", colour, line.name);
  }

  const std::vector<Line>& lines_;
  std::set<int64_t> ranks_;
  double most_ = 0;
};

}  // namespace

std::string scaling_chart(const PublishedTable& table, const TableResult& result) {
  const std::vector<Line> lines = lines_of(result);
  if (lines.empty())
    throw fail(ErrorCode::config, "plan: no rows of table ", table.id,
               " with a printed speed differ in their ranks alone",
               "\n   leave out --svg, or take a table that scales, such as internevo_parallel_tgs");
  return Chart(lines).text(table.id);
}

}  // namespace drivetrain
