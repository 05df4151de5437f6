// Schedules as text and as SVG.
#include <gtest/gtest.h>

#include "report/schedule_picture.h"

namespace drivetrain {
namespace {

// Two stages, as a schedule of stages would run them. Two chunks: the second in every other box.
Timeline two_stages(int64_t micro_batches, int64_t chunks = 1) {
  Timeline line;
  line.stages.resize(2);
  line.chunks = chunks, line.micro_batches = micro_batches;
  for (int64_t s = 0; s < 2; ++s) {
    Timeline::Stage& stage = line.stages[static_cast<size_t>(s)];
    stage.peak_in_flight = 2 - s;
    double at = static_cast<double>(s);
    for (int16_t m = 0; m < micro_batches; ++m) {
      const auto chunk = static_cast<int16_t>(m % chunks);
      stage.entries.push_back({{Op::load, m}, at, at});
      stage.entries.push_back({{Op::forward, m, chunk}, at, at + 1});
      stage.entries.push_back({{Op::backward, m, chunk}, at + 1, at + 3});
      at += 3, stage.busy += 3;
    }
    line.makespan = at;
  }
  return line;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(SchedulePicture, text_stands_where_it_is_in_time) {
  EXPECT_EQ(timeline_text(two_stages(2)),
            "  stage 0   F0 B0--- F1 B1---\n"
            "  stage 1      F0 B0--- F1 B1---\n");
}

TEST(SchedulePicture, text_names_chunks_where_there_are_several) {
  EXPECT_NE(timeline_text(two_stages(2, 2)).find("stage 0   F0.0 B0.0----- F1.1 B1.1-----\n"), std::string::npos);
}

TEST(SchedulePicture, wide_text_leaves_the_middle_out) {
  const std::string text = timeline_text(two_stages(100), 60);
  EXPECT_EQ(count(text, " ... "), 2u);
  EXPECT_NE(text.find("F0- B0----- F1-"), std::string::npos) << text;
  EXPECT_NE(text.find("F99 B99----\n"), std::string::npos) << text;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_LE(end - begin, 72u);
}

TEST(SchedulePicture, many_stages_leave_the_middle_out) {
  Timeline line = two_stages(1);
  line.stages.resize(100, line.stages[0]);
  const std::string text = timeline_text(line);
  EXPECT_EQ(count(text, "\n"), 17u);
  EXPECT_NE(text.find("  stage 7   F0 B0---\n  ...\n  stage 92  F0 B0---\n"), std::string::npos) << text;
}

TEST(SchedulePicture, svg_has_a_box_for_every_computation) {
  const std::string svg = timeline_svg(two_stages(5), "one & two <stages>");
  EXPECT_EQ(svg.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\"", 0), 0u);
  EXPECT_NE(svg.find("one &amp; two &lt;stages&gt;</text>"), std::string::npos);
  EXPECT_EQ(count(svg, "height=\"30.0\" fill=\"#"), 2u + 2 * 2 * 5);  // a row's ground and its boxes
  EXPECT_EQ(count(svg, "<svg"), count(svg, "</svg>"));
  EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
  EXPECT_NE(svg.find(">2 kept</text>"), std::string::npos);
  EXPECT_EQ(svg.find("weights"), std::string::npos);
}

TEST(SchedulePicture, svg_tells_halves_of_backward_apart) {
  Timeline line = two_stages(1);
  line.stages[0].entries.back().instr.op = Op::backward_input;
  line.stages[0].entries.push_back({{Op::backward_weight, 0}, 3, 4});
  const std::string svg = timeline_svg(line, "halves");
  EXPECT_NE(svg.find("backward, weights"), std::string::npos);
  EXPECT_EQ(count(svg, "height=\"30.0\" fill=\"#"), 2u + 3 + 3);  // stage 1 does both in one call: two boxes
}

TEST(SchedulePicture, svg_of_a_long_step_stays_within_bounds) {
  const std::string svg = timeline_svg(two_stages(1000), "long");
  const double width = std::stod(svg.substr(svg.find("width=\"") + 7));
  EXPECT_LE(width, 2.0 * 3001 + 200);
  EXPECT_EQ(svg.find(">999</text>"), std::string::npos);  // numbers that do not fit are left out, all of them
}

}  // namespace
}  // namespace drivetrain
