// Commands of somebody else: programs with a description beside them, and what is said of those that cannot be used.
// Libraries of commands are in examples/out_of_tree_command.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/run_program.h"

namespace drivetrain::program {
namespace {

namespace fs = std::filesystem;

#define EXPECT_PRINTED(ran, part) EXPECT_NE((ran).output.find(part), std::string::npos) << (ran).output

class Outside : public testing::Test {
 protected:
  void add(const std::string& name, const std::string& script, const std::string& description = "") {
    fs::create_directories(fs::path(folder_.path(name)).parent_path());
    std::ofstream(folder_.path(name)) << "#!/bin/bash\n" << script << "\n";
    fs::permissions(folder_.path(name), fs::perms::owner_exec, fs::perm_options::add);
    if (!description.empty()) std::ofstream(folder_.path(name + ".json")) << description;
  }
  test::Ran run(const std::string& words) const {
    return test::run_shell("DRIVETRAIN_PLUGIN_PATH=" + folder_.path() + "/one:" + folder_.path() + "/two " +
                           test::program() + " " + words);
  }

  test::TempFolder folder_;
};

constexpr const char* kGreets =
    R"({"summary": "greets a friend", "words": "NAME", "options": [{"name": "--times", "value": "N", "help": "so often"}]})";

TEST_F(Outside, a_program_gets_its_words_and_gives_its_exit_code) {
  add("one/drivetrain-greet", "echo \"$# $2 $DRIVETRAIN_PROGRAM\"; exit 9");
  const test::Ran ran = run("greet --loud 'a b' --plugin-path /nowhere -- --plugin-path x");
  EXPECT_EQ(ran.code, 9);
  EXPECT_EQ(ran.output, "5 a b " + fs::canonical(test::program()).string() + "\n");
  EXPECT_EQ(test::run_shell(test::program() + " greet --plugin-path " + folder_.path("one")).code, 9);
  EXPECT_EQ(test::run_shell(test::program() + " greet").code, 2);
}

TEST_F(Outside, help_completion_and_the_manual_page_have_it) {
  add("one/drivetrain-greet", "exit 9", kGreets);
  EXPECT_PRINTED(run("--help"), "  greets a friend\n");
  for (const char* words : {"help greet", "greet --help"}) {
    const test::Ran ran = run(words);
    EXPECT_EQ(ran.code, 0);
    EXPECT_PRINTED(ran, "usage: drivetrain greet NAME [--times N]");
    EXPECT_PRINTED(ran, "so often");
  }
  EXPECT_PRINTED(run("help --man"), ".SS drivetrain greet\n");
  EXPECT_PRINTED(run("completion bash"), "'greet')\n      words='<file>'");
  EXPECT_PRINTED(run("completion zsh"), "'greet:greets a friend'");
  EXPECT_PRINTED(test::run_shell(test::program() + " help greet --plugin-path " + folder_.path("one")), "so often");
}

TEST_F(Outside, two_of_one_name_and_names_of_the_program_are_not_used) {
  add("one/drivetrain-greet", "exit 9");
  add("two/drivetrain-greet", "exit 9");
  add("two/drivetrain-train", "exit 9");
  const test::Ran ran = run("greet");
  EXPECT_EQ(ran.code, 2);
  EXPECT_PRINTED(ran, folder_.path("one/drivetrain-greet") + " is not used: " + folder_.path("two/drivetrain-greet") +
                          " has the same name");
  EXPECT_PRINTED(run("--help"),
                 "not used: " + folder_.path("two/drivetrain-train") + ": train is a command of the program");
  EXPECT_EQ(run("train").code, 2);
}

TEST_F(Outside, a_damaged_description_is_told_with_its_place) {
  add("one/drivetrain-greet", "exit 9", "{\n \"sumary\": \"x\"}");
  const test::Ran ran = run("greet");
  EXPECT_EQ(ran.code, 2);
  EXPECT_PRINTED(ran, "drivetrain-greet.json:2:2  there is no key \"sumary\" here");
}

TEST_F(Outside, one_that_others_can_change_is_not_used) {
  add("one/drivetrain-greet", "exit 9");
  fs::permissions(folder_.path("one/drivetrain-greet"), fs::perms::others_write, fs::perm_options::add);
  const test::Ran ran = run("greet");
  EXPECT_EQ(ran.code, 2);
  EXPECT_PRINTED(ran, "is writable by others");
}

TEST_F(Outside, a_crash_and_a_closed_pipe_are_named) {
  add("one/drivetrain-greet", "kill -SEGV $$");
  const test::Ran crashed = run("greet");
  EXPECT_EQ(crashed.code, 139);
  EXPECT_PRINTED(crashed, "greet (" + folder_.path("one/drivetrain-greet") + ") was ended by signal 11");
  add("one/drivetrain-endless", "while echo line; do :; done");
  const test::Ran closed = test::run_shell("{ (DRIVETRAIN_PLUGIN_PATH=" + folder_.path("one") + " " + test::program() +
                                           " endless; echo code $? >&2) | true; }");
  EXPECT_PRINTED(closed, "endless (" + folder_.path("one/drivetrain-endless") + ") cannot write to its output");
  EXPECT_PRINTED(closed, "code 8");
}

TEST_F(Outside, what_cannot_be_started_is_told) {
  add("one/drivetrain-greet", "");
  std::ofstream(folder_.path("one/drivetrain-greet")) << "#!/no/such/shell\n";
  const test::Ran ran = run("greet");
  EXPECT_EQ(ran.code, 2);
  EXPECT_PRINTED(ran, "greet: cannot start " + folder_.path("one/drivetrain-greet") + ": No such file");
}

// As a build that was installed over another one has it.
TEST_F(Outside, a_library_of_commands_of_another_release_is_refused) {
  fs::create_directories(folder_.path("lib/drivetrain/commands"));
  fs::create_directories(folder_.path("bin"));
  fs::copy(test::program(), folder_.path("bin/drivetrain"));
  fs::create_symlink(DRIVETRAIN_BUILD_DIR "/lib/libdrivetrain.so", folder_.path("lib/libdrivetrain.so"));
  fs::create_symlink(OTHER_RELEASE_LIBRARY, folder_.path("lib/drivetrain/commands/inspect.so"));
  const test::Ran ran = test::run_shell(folder_.path("bin/drivetrain") + " inspect");
  EXPECT_EQ(ran.code, 2);
  EXPECT_PRINTED(ran, "lib/drivetrain/commands/inspect.so is of Drivetrain 9.9.9, the program of");
  const test::Ran missing = test::run_shell(folder_.path("bin/drivetrain") + " flight x");
  EXPECT_EQ(missing.code, 2);
  EXPECT_PRINTED(missing, "ninja command_flight");
}

}  // namespace
}  // namespace drivetrain::program
