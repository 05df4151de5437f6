// monitor/jsonl: lines as the events say them, on disk at once; errors that name the file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <drivetrain/monitor.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "support/plugin_under_test.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

struct Jsonl : ::testing::Test {
  Host host;
  TempFolder folder;
  std::unique_ptr<Monitor> monitor = make_plugin<Monitor>(host, "jsonl");

  Event begin(const std::string& output_dir) {
    Value data;
    data.set("output_dir", output_dir);
    return {"run_begin", 0, data};
  }
  static Event step(int64_t n, double loss) {
    Value data;
    data.set("step", n), data.set("loss", loss);
    return {"step", n, data};
  }
};

TEST_F(Jsonl, writes_every_step_as_it_is_before_the_next) {
  monitor->on_event(begin(folder.path()));
  const Event first = step(1, 0.1), second = step(2, 2.0000000000000004);
  monitor->on_event(first);
  EXPECT_EQ(folder.text("metrics.jsonl"), first.data.to_json() + "\n");
  monitor->on_event({"something_else", 1, {}});
  monitor->on_event(second);
  monitor->on_event({"run_end", 2, {}});
  EXPECT_EQ(folder.text("metrics.jsonl"), first.data.to_json() + "\n" + second.data.to_json() + "\n");
  EXPECT_EQ(parse_json(second.data.to_json(), "line").find("loss")->as_double(), 2.0000000000000004);
}

TEST_F(Jsonl, adds_to_the_lines_of_an_earlier_run) {
  for (int64_t n = 1; n <= 2; ++n) {
    const auto run = make_plugin<Monitor>(host, "jsonl");
    run->on_event(begin(folder.path()));
    run->on_event(step(n, 1.5));
  }
  EXPECT_EQ(folder.text("metrics.jsonl"), step(1, 1.5).data.to_json() + "\n" + step(2, 1.5).data.to_json() + "\n");
}

TEST_F(Jsonl, a_run_that_goes_on_replaces_the_lines_of_the_steps_that_it_does_again) {
  for (const int64_t first : {1, 3}) {
    const auto run = make_plugin<Monitor>(host, "jsonl");
    Event event = begin(folder.path());
    event.data.set("first_step", first);
    run->on_event(event);
    for (int64_t n = first; n <= 4; ++n) run->on_event(step(n, static_cast<double>(10 * first + n)));
  }
  std::string wanted;
  for (const int64_t n : {1, 2}) wanted += step(n, 10.0 + static_cast<double>(n)).data.to_json() + "\n";
  for (const int64_t n : {3, 4}) wanted += step(n, 30.0 + static_cast<double>(n)).data.to_json() + "\n";
  EXPECT_EQ(folder.text("metrics.jsonl"), wanted);
}

// What a power cut leaves: zeros where blocks were, half a line, a line without its end.
TEST_F(Jsonl, what_is_torn_is_told_and_goes_and_so_is_what_is_missing) {
  std::string text;
  for (const int64_t n : {1, 2, 5}) text += step(n, 1).data.to_json() + "\n";
  const std::string whole = text;
  text.insert(step(1, 1).data.to_json().size() + 1, std::string(20, '\0') + "\n");
  text += "oss\":1.5}\n" + step(6, 1).data.to_json().substr(0, 9);
  std::ofstream(folder.path("metrics.jsonl"), std::ios::binary) << text;
  Event event = begin(folder.path());
  event.data.set("first_step", 8);
  monitor->on_event(event);
  EXPECT_EQ(folder.text("metrics.jsonl"), whole);
  ASSERT_EQ(host.log.warnings.size(), 2u);
  EXPECT_NE(host.log.warnings[0].find("metrics.jsonl: 3 lines are no JSON"), std::string::npos) << host.log.warnings[0];
  EXPECT_NE(host.log.warnings[1].find("lines of steps are missing: 3-4, 6-7"), std::string::npos)
      << host.log.warnings[1];
  monitor->on_event(step(8, 2));
  EXPECT_EQ(folder.text("metrics.jsonl"), whole + step(8, 2).data.to_json() + "\n");
}

TEST_F(Jsonl, lines_without_a_step_are_not_ours_and_stay) {
  const std::string note = "{\"note\":\"by hand\"}\n", first = step(1, 1).data.to_json() + "\n";
  std::ofstream(folder.path("metrics.jsonl"), std::ios::binary) << first + note + step(2, 1).data.to_json() + "\n";
  Event event = begin(folder.path());
  event.data.set("first_step", 2);
  monitor->on_event(event);
  EXPECT_EQ(folder.text("metrics.jsonl"), first + note);
  EXPECT_TRUE(host.log.warnings.empty());
}

TEST_F(Jsonl, a_link_of_another_user_is_not_followed) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a link of another user";
  std::ofstream(folder.path("victim")) << "mine";
  for (const char* const target : {"victim", "not there yet"}) {
    std::filesystem::remove(folder.path("metrics.jsonl"));
    std::filesystem::create_symlink(folder.path(target), folder.path("metrics.jsonl"));
    ASSERT_EQ(lchown(folder.path("metrics.jsonl").c_str(), 65534, 65534), 0);
    const std::string said = error_of([&] { monitor->on_event(begin(folder.path())); });
    EXPECT_NE(said.find("a symbolic link of user 65534, which is not followed"), std::string::npos) << said;
  }
  // Behind a link of one's own, too.
  std::filesystem::rename(folder.path("metrics.jsonl"), folder.path("other"));
  std::filesystem::create_symlink("other", folder.path("metrics.jsonl"));
  const std::string said = error_of([&] { monitor->on_event(begin(folder.path())); });
  EXPECT_NE(said.find(folder.path("other") + ", a symbolic link of user 65534"), std::string::npos) << said;
  EXPECT_EQ(folder.text("victim"), "mine");
  EXPECT_FALSE(std::filesystem::exists(folder.path("not there yet")));
}

TEST_F(Jsonl, a_run_that_begins_again_replaces_all_lines) {
  for (const double loss : {1.5, 2.5}) {
    const auto run = make_plugin<Monitor>(host, "jsonl");
    Event event = begin(folder.path());
    event.data.set("first_step", 1);
    run->on_event(event);
    run->on_event(step(1, loss));
  }
  EXPECT_EQ(folder.text("metrics.jsonl"), step(1, 2.5).data.to_json() + "\n");
}

TEST_F(Jsonl, a_full_disk_is_an_error_that_names_the_file) {
  std::filesystem::create_symlink("/dev/full", folder.path("metrics.jsonl"));
  monitor->on_event(begin(folder.path()));
  try {
    monitor->on_event(step(7, 1));
    FAIL() << "written to a full disk";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
    EXPECT_EQ(e.what(), "monitor/jsonl: cannot write step 7 to " + folder.path("metrics.jsonl") +
                            ": No space left on device\n   free some space or choose another output_dir");
  }
}

TEST_F(Jsonl, a_missing_folder_is_an_error_that_names_the_file) {
  EXPECT_EQ(error_of([&] { monitor->on_event(begin(folder.path("none"))); }),
            "monitor/jsonl: cannot open " + folder.path("none/metrics.jsonl") + ": No such file or directory");
}

}  // namespace
}  // namespace drivetrain
