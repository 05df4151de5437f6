// Rows of published tables by the planner, against the bounds that it promises. They are planned as any config.
#include <cmath>
#include <map>

#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

class Published : public ProgramTest {
 protected:
  Value json_of(const std::string& words) {
    const Ran ran = run("plan " + words + " --json");
    EXPECT_EQ(ran.code, 0) << ran.output;
    return ran.code == 0 ? parse_json(ran.output, "plan") : Value::object();
  }
  static double number(const Value& value, std::initializer_list<const char*> keys) {
    const Value* at = &value;
    for (const char* key : keys) at = at->find(key);
    return at->as_double();
  }
};

TEST_F(Published, throughput_is_near_what_was_printed_and_rows_left_out_of_the_fit_too) {
  const Value all = json_of("--table all");
  double rows = 0;
  for (const Value& table : all.find("tables")->items()) {
    EXPECT_LE(number(table, {"tgs_errors", "mean"}), 0.05) << table.find("table")->as_string();
    EXPECT_LE(number(table, {"tgs_errors", "worst"}), 0.12) << table.find("table")->as_string();
    rows += number(table, {"tgs_errors", "rows"});
    if (table.find("table")->as_string() == "internevo_parallel_tgs") {
      EXPECT_EQ(number(table, {"held_back_tgs_errors", "rows"}), 16) << "with two ranks that share tensors";
      EXPECT_LE(number(table, {"held_back_tgs_errors", "mean"}), 0.08);
    }
    if (table.find("table")->as_string() != "internevo_gpu_memory") continue;
    EXPECT_EQ(number(table, {"memory_errors", "rows"}), 10) << "of eleven rows one is at the device's limit";
    EXPECT_LE(number(table, {"memory_errors", "median"}), 0.05);
    EXPECT_LE(number(table, {"memory_errors", "worst"}), 0.12);
    EXPECT_EQ(number(table, {"held_back_memory_errors", "rows"}), 4) << "of five of 20B one is at the limit";
    EXPECT_LE(number(table, {"held_back_memory_errors", "mean"}), 0.08);
  }
  EXPECT_GE(rows, 51) << "51 rows have a TGS and are fitted to";
  EXPECT_EQ(number(all, {"fit", "held_back", "rows"}), 25) << "16 with two ranks that share tensors, 9 of large models";
  EXPECT_LE(number(all, {"fit", "left_out", "mean"}), 0.04);
  EXPECT_LE(number(all, {"fit", "left_out", "worst"}), 0.12);
  for (const Value& constant : all.find("fit")->find("constants")->items()) {
    EXPECT_FALSE(constant.find("from")->as_string().empty()) << constant.to_json();
    if (const Value* const now = constant.find("fitted_now"))
      EXPECT_NEAR(constant.find("value")->as_double() / now->as_double(), 1, 0.1) << constant.to_json();
  }
}

// Of the configurations at 1024 GPUs, those of several tables once each.
TEST_F(Published, the_order_of_configurations_at_1024_ranks_is_the_printed_one) {
  std::map<double, double> planned;  // by printed TGS
  for (const char* name : {"internevo_parallel_tgs", "internevo_flops_ckpt", "internevo_flops_nockpt"}) {
    const Value table = json_of(std::string("--table ") + name);
    for (const Value& row : table.find("rows")->items())
      if (number(row, {"ranks"}) == 1024) planned[number(row, {"tgs"})] = number(row, {"planned_tgs"});
  }
  ASSERT_EQ(planned.size(), 9u) << "ten rows, of which two have one figure";
  double before = 0;
  for (const auto& [printed, tgs] : planned) {
    EXPECT_GT(tgs, before) << printed;
    before = tgs;
  }
}

TEST_F(Published, wider_groups_scale_worse_as_the_tables_show) {
  const Value table = json_of("--table internevo_parallel_tgs");
  std::map<std::pair<bool, bool>, double> scaling;  // by whether two ranks share tensors, and all ranks the state
  for (const Value& row : table.find("rows")->items())
    if (number(row, {"ranks"}) == 1024) {
      const auto has = [&](const char* words) { return row.find("row")->as_string().find(words) != std::string::npos; };
      scaling[{has("tensor 2"), has("over all")}] = number(row, {"scaling"});
    }
  EXPECT_NEAR((scaling[{false, true}]), 2271.0 / 4062, 0.05);
  EXPECT_NEAR((scaling[{false, false}]), 3625.0 / 4078, 0.05);
  EXPECT_NEAR((scaling[{true, true}]), 2785.0 / 3822, 0.05) << "held back";
  EXPECT_NEAR((scaling[{true, false}]), 3486.0 / 3761, 0.05) << "held back";
}

// The config of a row, planned by a user under the profile, gives the figures of the table.
TEST_F(Published, a_row_and_its_config_give_the_same_number) {
  size_t compared = 0;
  for (const char* name : {"internevo_parallel_tgs", "internevo_flops_ckpt", "xtuner_speed", "internevo_gpu_memory"}) {
    const Value table = json_of(std::string("--table ") + name);
    const auto& rows = table.find("rows")->items();
    for (const size_t i : {size_t{1}, rows.size() - 1}) {
      write("row.json", rows[i].find("config")->to_json());
      const Value alone = json_of(path("row.json") + " --profile " + rows[i].find("profile")->as_string() + " -n " +
                                  rows[i].find("ranks")->to_json());
      EXPECT_EQ(*alone.find("forecast"), *rows[i].find("forecast")) << rows[i].find("row")->as_string();
      ++compared;
    }
  }
  EXPECT_EQ(compared, 8u);
}

TEST_F(Published, every_assumption_and_every_constant_is_in_the_text_and_in_the_json) {
  const Value json = json_of("--table xtuner_speed");
  EXPECT_EQ(json.find("rows")->items().size(), 14u);
  const std::string text = run("plan --table xtuner_speed").output;
  ASSERT_FALSE(json.find("assumptions")->items().empty());
  for (const Value& line : json.find("assumptions")->items())
    EXPECT_NE(text.find(line.as_string()), std::string::npos) << line.as_string();
  expect_says(text, {"TFLOPS, MFU", "samples/s", "constants, and where each is from", "products.share", "fitted",
                     "time.step_s"});
  EXPECT_EQ(text.find("(not said)"), std::string::npos) << text;
}

TEST_F(Published, a_table_that_scales_is_drawn_with_what_was_printed) {
  const Ran ran = run("plan --table internevo_parallel_tgs --svg " + path("scaling.svg"));
  EXPECT_EQ(ran.code, 0) << ran.output;
  const std::string svg = file_bytes(path("scaling.svg"));
  expect_says(svg, {"<svg", "internevo_parallel_tgs", "state over all", "printed 3625", "tensor 2", "</svg>"});
  size_t rings = 0;
  for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++rings;
  EXPECT_EQ(rings, 32u) << "one for each row";
  expect_refused("plan --table internevo_gpu_memory --svg " + path("none.svg"), 2,
                 {"internevo_gpu_memory", "differ in their ranks alone", "--svg"});
  expect_refused("plan --table all --svg " + path("none.svg"), 2, {"--svg", "one table", "xtuner_speed"});
  EXPECT_FALSE(std::filesystem::exists(path("none.svg")));
}

TEST_F(Published, what_has_no_meaning_beside_a_table_is_refused_and_a_machine_is_used) {
  expect_refused("plan --table xtuner_speed -n 8", 2, {"-n", "beside --table", "says its ranks"});
  expect_refused("plan --table xtuner_speed --profile xtuner", 2, {"--profile", "beside --table"});
  expect_refused("plan " + path("tiny.json") + " --profile xtunr", 2,
                 {"no profile", "systems.json", "did you mean \"xtuner\""});
  const Value here = json_of("--table xtuner_speed"), there = json_of("--table xtuner_speed --hardware h100");
  EXPECT_GT(number(there.find("rows")->items().front(), {"planned_tgs"}),
            1.5 * number(here.find("rows")->items().front(), {"planned_tgs"}));
}

}  // namespace
}  // namespace drivetrain::test
