// What a rank's log shows where: stdout, stderr, log.txt, a terminal.
#include "log/log_console.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

std::string content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class ConsoleLogTest : public testing::Test {
 protected:
  ConsoleLogTest() : folder_(testing::TempDir() + "/log_test_" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
    settings_.out = open("out");
    settings_.err = open("err");
  }
  ~ConsoleLogTest() override {
    close(settings_.out);
    close(settings_.err);
    std::filesystem::remove_all(folder_);
  }

  int open(const std::string& name) {
    return ::open(path(name).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string out() const { return content(path("out")); }
  std::string err() const { return content(path("err")); }

  std::string folder_;
  LogSettings settings_;
};

TEST_F(ConsoleLogTest, rank_0_shows_info_on_stdout_and_problems_on_stderr) {
  const auto log = make_console_log(settings_);
  log->debug("hidden");
  log->info("step 1");
  log->warning("slow path");
  log->error("broken");
  EXPECT_EQ(out(), "step 1\n");
  EXPECT_EQ(err(), "warning: slow path\nerror: broken\n");
}

TEST_F(ConsoleLogTest, other_ranks_show_problems_only) {
  settings_.rank = 1;
  settings_.level = LogLevel::debug;
  settings_.terminal = true;
  const auto log = make_console_log(settings_);
  log->info("step 1");
  log->progress("50 %");
  log->warning("slow path");
  EXPECT_EQ(out(), "");
  EXPECT_EQ(err(), "warning: slow path\n");
}

TEST_F(ConsoleLogTest, the_level_decides_what_is_shown) {
  settings_.level = LogLevel::debug;
  make_console_log(settings_)->debug("detail");
  EXPECT_EQ(out(), "debug: detail\n");
  settings_.level = LogLevel::error;
  const auto log = make_console_log(settings_);
  log->info("no");
  log->warning("no");
  log->error("yes");
  EXPECT_EQ(out(), "debug: detail\n");
  EXPECT_EQ(err(), "error: yes\n");
}

TEST_F(ConsoleLogTest, the_file_holds_what_the_console_showed_from_the_first_line_on_without_colour) {
  settings_.colour = true;
  const auto log = make_console_log(settings_);
  log->info("before the folder is known");
  log->warning("early {} %v %s");  // nothing in a line is a format
  attach_file(*log, path("log.txt"));
  log->info("after");
  EXPECT_EQ(content(path("log.txt")), "before the folder is known\nwarning: early {} %v %s\nafter\n");
  EXPECT_EQ(out(), "before the folder is known\nafter\n");
  EXPECT_EQ(err(), "\033[33mwarning: early {} %v %s\033[0m\n");
}

TEST_F(ConsoleLogTest, an_attached_file_is_added_to) {
  std::ofstream(path("log.txt")) << "older\n";
  const auto log = make_console_log(settings_);
  attach_file(*log, path("log.txt"));
  log->info("newer");
  EXPECT_EQ(content(path("log.txt")), "older\nnewer\n");
}

TEST_F(ConsoleLogTest, a_progress_line_is_replaced_by_the_next_and_by_lines_that_stay) {
  settings_.terminal = true;
  {
    const auto log = make_console_log(settings_);
    attach_file(*log, path("log.txt"));
    log->progress("step 1");
    log->progress("step 2");
    log->info("kept");
    log->info("kept too");
    log->progress(std::string(200, 'x'));
  }
  const std::string erase = "\r\033[K";
  EXPECT_EQ(out(),
            erase + "step 1" + erase + "step 2" + erase + "kept\nkept too\n" + erase + std::string(79, 'x') + erase);
  EXPECT_EQ(content(path("log.txt")), "kept\nkept too\n");
}

TEST_F(ConsoleLogTest, without_a_terminal_there_is_no_progress_line) {
  make_console_log(settings_)->progress("step 1");
  EXPECT_EQ(out(), "");
}

TEST_F(ConsoleLogTest, a_full_disk_is_reported_once_and_the_console_goes_on) {
  const auto log = make_console_log(settings_);
  attach_file(*log, "/dev/full");
  for (int i = 0; i < 3; ++i) log->info("line");
  EXPECT_EQ(out(), "line\nline\nline\n");
  const std::string report = err();
  EXPECT_NE(report.find("/dev/full"), std::string::npos) << report;
  EXPECT_NE(report.find("No space left on device"), std::string::npos) << report;
  EXPECT_EQ(std::count(report.begin(), report.end(), '\n'), 1) << report;
}

TEST_F(ConsoleLogTest, a_file_that_cannot_be_opened_is_an_io_error_with_its_path) {
  const auto log = make_console_log(settings_);
  try {
    attach_file(*log, "/proc/no/such/folder/log.txt");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
    EXPECT_NE(std::string(e.what()).find("log.txt"), std::string::npos) << e.what();
  }
}

TEST_F(ConsoleLogTest, lines_of_several_threads_stay_whole) {
  const auto log = make_console_log(settings_);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) log->info("one whole line");
    });
  for (std::thread& t : threads) t.join();
  std::istringstream lines(out());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) ASSERT_EQ(line, "one whole line");
  EXPECT_EQ(count, 800);
}

}  // namespace
}  // namespace drivetrain
