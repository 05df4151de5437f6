// A timeline as a standalone SVG.
#include <algorithm>
#include <cmath>

#include <drivetrain/toolkit/text.h>

#include "report/schedule_picture.h"

namespace drivetrain {
namespace {

constexpr double kLeft = 84, kRight = 84, kTop = 84, kRow = 30, kGap = 8, kBottom = 52;

std::string escaped(const std::string& plain) {
  std::string text;
  for (const char c : plain) text += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return text;
}

std::string text_at(double x, double y, double size, const char* more, const std::string& text) {
  return formatted("<text x=\"%.1f\" y=\"%.1f\" font-size=\"%.1f\" %s>", x, y, size, more) + escaped(text) +
         "</text>\n";
}

enum class Colour { forward, backward, weight };

// Colours that differ for colour-blind readers too; later chunks are darker.
std::string fill_of(Colour colour, int64_t chunk, int64_t chunks) {
  const int hue = colour == Colour::forward ? 205 : colour == Colour::backward ? 28 : 150;
  const double light = chunks > 1 ? 84 - 28.0 * static_cast<double>(chunk) / static_cast<double>(chunks - 1) : 72;
  // Written as #rrggbb: not every viewer knows hsl().
  const double saturation = colour == Colour::weight ? 0.42 : 0.75, l = light / 100,
               reach = saturation * std::min(l, 1 - l);
  const auto part = [&](int n) {
    const double k = std::fmod(n + hue / 30.0, 12);
    return static_cast<int>(std::lround(255 * (l - reach * std::max(-1.0, std::min({k - 3, 9 - k, 1.0})))));
  };
  return formatted("#%02x%02x%02x", part(0), part(8), part(4));
}

class SvgWriter {
 public:
  explicit SvgWriter(const Timeline& line) : line_(line) {
    for (const Timeline::Stage& stage : line.stages)
      for (const Timeline::Entry& e : stage.entries) {
        split_ = split_ || e.instr.op == Op::backward_weight;
        if (e.end > e.start && e.instr.op == Op::forward) shortest_ = std::min(shortest_, e.end - e.start);
      }
    // Room for a number in every box, but no wider than a few screens.
    scale_ = std::clamp(5000 / std::max(line.makespan, 1.0), 2.0, 24 / std::clamp(shortest_, 0.4, 1.0));
    width_ = std::max(kLeft + line.makespan * scale_ + kRight, 780.0);
    height_ = kTop + static_cast<double>(line.stages.size()) * (kRow + kGap) + kBottom;
  }

  std::string write(const std::string& title) {
    svg_ = formatted(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
        "font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n<rect width=\"100%%\" height=\"100%%\" "
        "fill=\"#ffffff\"/>\n",
        width_, height_, width_, height_);
    svg_ += text_at(16, 28, 18, "font-weight=\"bold\" fill=\"#222222\"", title);
    legend();
    for (size_t s = 0; s < line_.stages.size(); ++s) row(s);
    axis();
    return svg_ + "</svg>\n";
  }

 private:
  void legend() {
    double x = 16;
    const auto entry = [&](Colour colour, const std::string& what) {
      for (int64_t c = 0; c < line_.chunks; ++c, x += 16) {
        svg_ += formatted(
            "<rect x=\"%.1f\" y=\"44\" width=\"16\" height=\"16\" fill=\"%s\" stroke=\"#555555\" "
            "stroke-width=\"0.6\"/>\n",
            x, fill_of(colour, c, line_.chunks).c_str());
        if (line_.chunks > 1) svg_ += text_at(x + 8, 56, 10, "text-anchor=\"middle\" fill=\"#111111\"", concat(c));
      }
      svg_ += text_at(x + 6, 57, 13, "fill=\"#222222\"", what);
      x += 6 + 7.6 * static_cast<double>(what.size()) + 14;
    };
    const std::string by_chunk = line_.chunks > 1 ? " of chunk" : "";
    entry(Colour::forward, "forward" + by_chunk);
    entry(Colour::backward, split_ ? "backward, inputs" + by_chunk : "backward" + by_chunk);
    if (split_) entry(Colour::weight, "backward, weights" + by_chunk);
    svg_ += formatted(
        "<rect x=\"%.1f\" y=\"44\" width=\"16\" height=\"16\" fill=\"#eeeeee\" stroke=\"#bbbbbb\" "
        "stroke-width=\"0.6\"/>\n",
        x);
    svg_ += text_at(x + 22, 57, 13, "fill=\"#222222\"", "idle");
  }

  void row(size_t s) {
    const Timeline::Stage& stage = line_.stages[s];
    const double y = kTop + static_cast<double>(s) * (kRow + kGap);
    svg_ += text_at(16, y + 20, 13, "fill=\"#222222\"", concat("stage ", s));
    svg_ += formatted("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#eeeeee\"/>\n", kLeft, y,
                      line_.makespan * scale_, kRow);
    for (const Timeline::Entry& e : stage.entries) {
      if (e.end <= e.start) continue;
      const double middle = (e.start + e.end) / 2;
      if (e.instr.op == Op::forward)
        box(Colour::forward, e.instr, e.start, e.end, y);
      else if (e.instr.op == Op::backward_weight)
        box(Colour::weight, e.instr, e.start, e.end, y);
      else if (e.instr.op == Op::backward && split_)
        box(Colour::backward, e.instr, e.start, middle, y), box(Colour::weight, e.instr, middle, e.end, y);
      else if (e.instr.op == Op::backward || e.instr.op == Op::backward_input)
        box(Colour::backward, e.instr, e.start, e.end, y);
    }
    svg_ += text_at(kLeft + line_.makespan * scale_ + 10, y + 20, 12, "fill=\"#555555\"",
                    concat(stage.peak_in_flight, " kept"));
  }

  void box(Colour colour, const Instr& instr, double start, double end, double y) {
    const double x = kLeft + start * scale_, width = (end - start) * scale_;
    svg_ += formatted(
        "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" stroke=\"#555555\" "
        "stroke-width=\"0.6\"/>\n",
        x, y, width, kRow, fill_of(colour, instr.chunk, line_.chunks).c_str());
    // All numbers or none, among boxes of one length: the longest decides.
    const double size = std::min(13.0, 1.5 * (width - 3) / static_cast<double>(concat(line_.micro_batches - 1).size()));
    if (size >= 7)
      svg_ += text_at(x + width / 2, y + kRow / 2 + size * 0.36, size, "text-anchor=\"middle\" fill=\"#111111\"",
                      concat(instr.micro));
  }

  void axis() {
    const double y = height_ - kBottom + 4, end = line_.makespan;
    svg_ += formatted("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#555555\"/>\n", kLeft, y,
                      kLeft + end * scale_, y);
    double step = 1;
    for (const double grow : {2.0, 2.5, 2.0, 2.0, 2.5, 2.0, 2.0, 2.5, 2.0, 2.0, 2.5, 2.0})
      if (step * scale_ < 44) step *= grow;
    for (int64_t i = 0; static_cast<double>(i) * step <= end + 1e-9; ++i) {
      const double t = static_cast<double>(i) * step, x = kLeft + t * scale_;
      svg_ += formatted("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#555555\"/>\n", x, y, x, y + 5);
      svg_ += text_at(x, y + 18, 12, "text-anchor=\"middle\" fill=\"#555555\"", formatted("%.0f", t));
    }
    const std::string of = line_.chunks > 1 ? "a micro-batch in a chunk" : "a micro-batch";
    svg_ += text_at(16, y + 38, 12, "fill=\"#555555\"",
                    concat("time: forward of ", of,
                           " takes 1 on average, backward twice as long; kept: activations of ", of, " each"));
  }

  const Timeline& line_;
  std::string svg_;
  bool split_ = false;
  double shortest_ = 1, scale_ = 1, width_ = 0, height_ = 0;
};

}  // namespace

std::string timeline_svg(const Timeline& line, const std::string& title) { return SvgWriter(line).write(title); }

}  // namespace drivetrain
