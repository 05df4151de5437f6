// The program itself: what runs without LibTorch, which LibTorch is taken, and what a crash looks like.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "drivetrain/library.h"
#include "drivetrain/stack_trace.h"

namespace drivetrain::program {
namespace {

namespace fs = std::filesystem;

struct Ran {
  int code = 0;
  std::string text;  // stdout and stderr
};

Ran run_shell(const std::string& command) {
  Ran ran;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) ran.text.append(buffer, n);
  const int status = pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

const std::string kProgram = DRIVETRAIN_BUILD_DIR "/bin/drivetrain ";

#define EXPECT_TOLD(ran, part) EXPECT_NE((ran).text.find(part), std::string::npos) << (ran).text

class ProgramTest : public testing::Test {
 protected:
  ProgramTest() : folder_(fs::path(testing::TempDir()) / ("program_test_" + std::to_string(getpid()))) {
    fs::create_directories(folder_ / "torch/lib");
    std::ofstream(folder_ / "torch/lib/libtorch_cpu.so") << "not a library";
  }
  ~ProgramTest() override { fs::remove_all(folder_); }
  void write(const fs::path& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  std::string torch() const { return (folder_ / "torch").string(); }
  Ran run_with_this_torch(const std::string& arguments) const {
    return run_shell("DRIVETRAIN_TORCH=" + torch() + " " + kProgram + arguments);
  }

  const fs::path folder_;
};

TEST_F(ProgramTest, help_version_and_usage_errors_need_no_libtorch) {
  for (const char* words : {"--help", "--version", "train --help", "launch -h"})
    EXPECT_EQ(run_with_this_torch(words).code, 0) << words;
  EXPECT_TOLD(run_with_this_torch("--version"),
              "drivetrain " DRIVETRAIN_RELEASE " (LibTorch " DRIVETRAIN_TORCH_RELEASE ")");
  for (const char* words : {"", "trian", "train", "train a b", "flight", "launch --hostfile h a"}) {
    const Ran ran = run_with_this_torch(words);
    EXPECT_EQ(ran.code, 2) << words;
    EXPECT_TOLD(ran, "drivetrain: error: ");
    EXPECT_EQ(ran.text.find("LibTorch at"), std::string::npos) << ran.text;
  }
}

TEST_F(ProgramTest, the_release_of_libtorch_is_read_from_whatever_file_tells_it) {
  EXPECT_EQ(torch_release(torch()), "");
  write("torch-2.9.1+cpu.dist-info/METADATA", "");
  EXPECT_EQ(torch_release(torch()), "2.9.1+cpu");
  EXPECT_EQ(torch_release(torch() + "/"), "2.9.1+cpu");
  write("torch/version.py", "from typing import Optional\n__version__ = '2.10.0+cu130'\ndebug = False\n");
  EXPECT_EQ(torch_release(torch()), "2.10.0+cu130");
  write("torch/include/torch/headeronly/version.h",
        "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 12\n#define TORCH_VERSION_PATCH 3\n");
  EXPECT_EQ(torch_release(torch()), "2.12.3");
}

TEST_F(ProgramTest, another_release_of_libtorch_is_refused_with_both_releases) {
  write("torch/version.py", "__version__ = '2.10.0+cu130'\n");
  const Ran ran = run_with_this_torch("inspect");
  EXPECT_EQ(ran.code, 2);
  EXPECT_TOLD(ran, "LibTorch at DRIVETRAIN_TORCH=" + torch() +
                       " is 2.10.0+cu130; this build needs " DRIVETRAIN_TORCH_RELEASE "\n   unset DRIVETRAIN_TORCH");
}

TEST_F(ProgramTest, a_missing_or_broken_libtorch_is_named_with_the_remedy) {
  const Ran missing = run_shell("DRIVETRAIN_TORCH=/no/such/torch " + kProgram + "inspect");
  EXPECT_EQ(missing.code, 2);
  EXPECT_TOLD(missing, "no LibTorch at DRIVETRAIN_TORCH=/no/such/torch");
  EXPECT_TOLD(missing,
              "is not there\n   unset DRIVETRAIN_TORCH (if there is no LibTorch then either, run tools/quickstart");
  EXPECT_TOLD(missing, "), or set it to the `torch` folder");
  write("torch/version.py", "__version__ = '" DRIVETRAIN_TORCH_RELEASE "'\n");
  const Ran broken = run_with_this_torch("inspect");
  EXPECT_EQ(broken.code, 2);
  EXPECT_TOLD(broken, "cannot open a library: " + torch() + "/lib/libc10.so");
}

// An installed tree on another machine: there is no script that brings LibTorch, and Python may have it.
TEST_F(ProgramTest, away_from_a_clone_the_remedy_is_a_line_that_finds_the_torch_of_python) {
  fs::create_directories(folder_ / "bin");
  fs::copy_file(DRIVETRAIN_BUILD_DIR "/bin/drivetrain", folder_ / "bin/drivetrain");
  const std::string program = (folder_ / "bin/drivetrain").string();
  for (const char* words : {" inspect", " doctor", " train a.json"}) {
    const Ran missing = run_shell("cd " + folder_.string() + " && DRIVETRAIN_TORCH=/no/such/torch " + program + words);
    EXPECT_EQ(missing.code, 2) << words;
    EXPECT_TOLD(missing, "no LibTorch at DRIVETRAIN_TORCH=/no/such/torch");
    EXPECT_TOLD(
        missing,
        "is not there\n   unset DRIVETRAIN_TORCH, or set it to the `torch` folder of a torch " DRIVETRAIN_TORCH_RELEASE
        " wheel");
    EXPECT_EQ(missing.text.find("quickstart"), std::string::npos) << missing.text;
    const size_t line = missing.text.find("export DRIVETRAIN_TORCH=");
    ASSERT_NE(line, std::string::npos) << missing.text;
    write("python/torch/__init__.py", "");
    const Ran found =
        run_shell("export PYTHONPATH=" + (folder_ / "python").string() + "\n" +
                  missing.text.substr(line, missing.text.find('\n', line) - line) + "\necho \"$DRIVETRAIN_TORCH\"");
    EXPECT_EQ(found.text, (folder_ / "python/torch").string() + "\n");
  }
}

// As plugins are: whoever can change a library that is loaded can do what this user can.
TEST_F(ProgramTest, a_libtorch_that_others_can_change_is_refused) {
  write("torch/version.py", "__version__ = '" DRIVETRAIN_TORCH_RELEASE "'\n");
  write("torch/lib/libc10.so", "not a library");
  fs::permissions(folder_ / "torch/lib/libc10.so", fs::perms::others_write, fs::perm_options::add);
  const Ran file = run_with_this_torch("inspect");
  EXPECT_EQ(file.code, 2);
  EXPECT_TOLD(file, "lib/libc10.so is writable by others");
  fs::permissions(folder_ / "torch/lib/libc10.so", fs::perms::others_write, fs::perm_options::remove);
  fs::permissions(folder_ / "torch", fs::perms::others_write, fs::perm_options::add);
  const Ran folder = run_with_this_torch("inspect");
  EXPECT_EQ(folder.code, 2);
  EXPECT_TOLD(folder, "torch is writable by others");
}

TEST_F(ProgramTest, a_program_without_its_library_says_so) {
  fs::create_directories(folder_ / "bin");
  fs::copy_file(DRIVETRAIN_BUILD_DIR "/bin/drivetrain", folder_ / "bin/drivetrain");
  const Ran ran = run_shell((folder_ / "bin/drivetrain").string() + " inspect");
  EXPECT_EQ(ran.code, 2);
  EXPECT_TOLD(ran, (folder_ / "lib/libdrivetrain.so").string());
}

template <class Exception>
void throw_one(const char* text) {
  throw Exception(text);
}

TEST(StackTrace, an_exception_that_nobody_caught_exits_with_1_and_names_itself) {
  const auto crash = [] {
    install_stack_traces();
    [&]() noexcept { throw_one<std::out_of_range>("vector index 7"); }();
  };
  EXPECT_EXIT(crash(), testing::ExitedWithCode(1),
              "stack(.|\n)*launch_test(.|\n)*uncaught std::out_of_range: vector index 7\n$");
}

TEST(StackTrace, a_text_of_many_lines_ends_with_its_first) {
  const auto crash = [] {
    install_stack_traces();
    [&]() noexcept { throw_one<std::runtime_error>("shapes differ\nframe #0\nframe #1"); }();
  };
  EXPECT_EXIT(crash(), testing::ExitedWithCode(1), "frame #1\n.*uncaught std::runtime_error: shapes differ\n$");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(StackTrace, a_crash_prints_the_stack_and_keeps_its_signal) {
  const auto crash = [] {
    install_stack_traces();
    raise(SIGSEGV);
  };
  EXPECT_EXIT(crash(), testing::KilledBySignal(SIGSEGV), "crashed by signal 11\n(.|\n)*stack(.|\n)*launch_test");
}
#endif

}  // namespace
}  // namespace drivetrain::program
