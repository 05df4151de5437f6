#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "data_tools/show.h"

namespace drivetrain {
namespace {

constexpr double kWidth = 860, kLeft = 60, kRight = 20, kTop = 50, kHeight = 320, kBottom = 60;

std::string escaped(const std::string& text) {
  std::string made;
  for (const char c : text) made += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return made;
}

std::string short_count(uint64_t n) {
  for (const auto& [unit, name] : {std::pair{1e9, "G"}, {1e6, "M"}, {1e3, "k"}})
    if (static_cast<double>(n) >= unit) return formatted("%.3g", static_cast<double>(n) / unit) + name;
  return concat(n);
}

std::string word(double x, double y, const std::string& text, const char* anchor = "middle") {
  return formatted("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor) + escaped(text) + "</text>\n";
}

}  // namespace

std::string histogram_svg(const LengthHistogram& histogram, const std::string& title) {
  const size_t count = std::max<size_t>(1, histogram.bars.size());
  const uint64_t most = histogram.bars.empty() ? 1 : *std::max_element(histogram.bars.begin(), histogram.bars.end());
  const double step = (kWidth - kLeft - kRight) / static_cast<double>(count), base = kTop + kHeight;
  std::string svg = formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
      "fill=\"white\"/>\n",
      kWidth, base + kBottom);
  svg += word(kLeft, 24, title, "start");
  for (size_t i = 0; i < histogram.bars.size(); ++i) {
    const double share = static_cast<double>(histogram.bars[i]) / static_cast<double>(most);
    const double x = kLeft + step * static_cast<double>(i);
    svg += formatted("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#4878a8\"/>\n", x + 1,
                     base - kHeight * share, step - 2, kHeight * share);
    if (histogram.bars[i] > 0) svg += word(x + step / 2, base - kHeight * share - 4, short_count(histogram.bars[i]));
    svg += word(x, base + 18, i == 0 ? "0" : short_count(uint64_t{1} << i));
  }
  svg += formatted("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"black\"/>\n", kLeft, base,
                   kWidth - kRight, base);
  svg += word(kLeft + (kWidth - kLeft - kRight) / 2, base + 42, "tokens per document");
  return svg + "</svg>\n";
}

}  // namespace drivetrain
