// `train --plan` draws the schedule of a step, as text and into a file.
#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

class PlannedSchedule : public ProgramTest {
 protected:
  std::string stages(const std::string& type, const std::string& params) const {
    return " --set gradient_accumulation_steps=4 --set train_batch_size=4 --set 'pipeline={\"type\": \"" + type +
           "\", \"params\": " + params + "}'";
  }
};

TEST_F(PlannedSchedule, a_plan_of_several_stages_shows_who_does_what_when) {
  const Ran ran = run("launch -n 2 " + path("tiny.json") + " --plan" + stages("one_f_one_b", "{\"stages\": 2}"));
  EXPECT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output,
              {"pp 2", "schedule one_f_one_b: 2 stages, 4 micro-batches, bubble ", "  stage 0   F0", "  stage 1  "});
}

TEST_F(PlannedSchedule, svg_goes_into_the_file_that_was_named) {
  for (const std::string type : {"gpipe", "one_f_one_b", "interleaved", "zero_bubble_h1"}) {
    const std::string more = type == "interleaved" ? "{\"stages\": 2, \"chunks\": 1}" : "{\"stages\": 2}";
    const Ran ran =
        run("launch -n 2 " + path("tiny.json") + " --plan --svg " + path(type + ".svg") + stages(type, more));
    EXPECT_EQ(ran.code, 0) << ran.output;
    const std::string svg = file_bytes(path(type + ".svg"));
    EXPECT_EQ(svg.rfind("<svg xmlns", 0), 0u);
    EXPECT_NE(svg.find(type + ": 2 stages, 4 micro-batches, bubble "), std::string::npos);
  }
}

TEST_F(PlannedSchedule, svg_needs_a_plan_and_a_place) {
  expect_refused("train " + path("tiny.json") + " --svg x.svg", 2,
                 {"--svg goes with --plan", "usage: drivetrain train"});
  expect_refused("launch -n 2 " + path("tiny.json") + " --svg x.svg", 2, {"--svg goes with --plan"});
  expect_refused("train " + path("tiny.json") + " --plan --svg", 2, {"--svg wants FILE after it"});
  expect_refused("train " + path("tiny.json") + " --plan --svg nowhere/x.svg", 8, {"nowhere"});
}

TEST_F(PlannedSchedule, more_stages_than_units_or_ranks_are_refused_with_both_numbers) {
  expect_refused("launch -n 64 " + path("tiny.json") + " --plan" + stages("gpipe", "{\"stages\": 64}"), 2,
                 {"64 stages", "64 pieces", "3 units"});
  expect_refused("launch -n 3 " + path("tiny.json") + " --plan" + stages("gpipe", "{\"stages\": 2}"), 2,
                 {"pp 2", "3 ranks"});
  expect_refused("train " + path("tiny.json") + " --plan" + stages("gpipe", "{\"stages\": 0}"), 2, {"stages"});
  expect_refused("train " + path("tiny.json") + " --plan" + stages("interleaved", "{\"stages\": 2, \"group_size\": 1}"),
                 2, {"group_size 1 is less than the 2 stages"});
}

}  // namespace
}  // namespace drivetrain::test
