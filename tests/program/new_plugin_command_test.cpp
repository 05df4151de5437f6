// `drivetrain new-plugin`, from a build tree: what it makes, and what it refuses without leaving anything behind. That
// the plugins build and pass is tests/outside/new_plugin_test.cpp.
#include "plugin/kinds.h"
#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

namespace fs = std::filesystem;

class NewPlugin : public ProgramTest {
 protected:
  Ran make(const std::string& words) const { return run("new-plugin " + words + " --dir " + folder()); }
  void expect_nothing_made(const std::string& words, int code, const std::vector<std::string>& parts) const {
    expect_refused("new-plugin " + words, code, parts);
  }
};

TEST_F(NewPlugin, makes_a_whole_project) {
  const Ran ran = make("attention near_and_far");
  ASSERT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output, {"attention/near_and_far is in ", "cmake --install ", "cmake -S ", "cmake --build ",
                           "conformance ", "attention_near_and_far.so"});
  for (const char* name :
       {"near_and_far.cpp", "CMakeLists.txt", "README.md", "run.json", ".gitignore", ".github/workflows/build.yml"})
    EXPECT_TRUE(fs::is_regular_file(path(std::string("near_and_far/") + name))) << name;
  expect_says(
      file_bytes(path("near_and_far/near_and_far.cpp")),
      {"class NearAndFarPlugin", "DRIVETRAIN_PLUGIN(drivetrain::Attention, \"near_and_far\", NearAndFarPlugin)"});
  expect_says(file_bytes(path("near_and_far/CMakeLists.txt")), {"find_package(Drivetrain 0.1 REQUIRED)"});
  EXPECT_EQ((fs::status(path("near_and_far")).permissions() & fs::perms::owner_all), fs::perms::owner_all);
}

TEST_F(NewPlugin, there_is_a_template_for_every_kind) {
  const Ran ran = make("no_kind x");
  for (const KindRule& rule : kind_rules())
    EXPECT_NE(ran.output.find(rule.kind), std::string::npos) << rule.kind << " is not known: " << ran.output;
}

TEST_F(NewPlugin, refuses_with_the_place_and_the_remedy) {
  expect_nothing_made("atention x", 2, {"there is no kind \"atention\"", "did you mean \"attention\"?", "tokenizer"});
  for (const char* name : {"Mine", "9lives", "my-plugin", "_x", "a/b", "''", "..", "näh"})
    expect_nothing_made(std::string("optimizer ") + name, 2, {"cannot be a plugin's name", "lower-case letters"});
  expect_nothing_made("optimizer " + std::string(65, 'a'), 2, {"1 to 64"});
  expect_nothing_made("optimizer", 2, {"new-plugin"});
  expect_nothing_made("optimizer x --dir none/where", 2, {"none/where is no folder", "mkdir -p none/where"});
  expect_nothing_made("optimizer x --dir /proc", 8, {"cannot write", "/proc/x", "nothing was made"});
}

TEST_F(NewPlugin, never_overwrites) {
  write("x/mine.txt", "mine");
  write("y", "a file");
  fs::create_symlink("nowhere", path("z"));
  for (const char* name : {"x", "y", "z"})
    expect_nothing_made(std::string("monitor ") + name + " --dir " + folder(), 2,
                        {"is there already", "choose another name"});
}

// Nothing may be written: as on a full disk, the first byte fails.
TEST_F(NewPlugin, leaves_nothing_behind_where_the_disk_is_full) {
  const std::set<std::string> before = files();
  const Ran ran = run_shell("cd " + folder() + " && trap '' XFSZ && ulimit -f 0 && " + program() +
                            " new-plugin dataset x 2>&1 | cat");
  expect_says(ran.output, {"cannot write", "File too large", "nothing was made"});
  EXPECT_EQ(files(), before);
}

// The program alone, without what belongs to it.
TEST_F(NewPlugin, says_what_is_not_installed) {
  fs::create_directory(path("bin"));
  fs::copy(program(), path("bin/drivetrain"));
  const std::string alone = path("bin/drivetrain");
  const Ran templates = run_shell("cd " + folder() + " && " + alone + " new-plugin dataset x");
  EXPECT_EQ(templates.code, 3) << templates.output;
  expect_says(templates.output,
              {"the templates are not installed", "share/drivetrain/templates", "install both again"});
  const Ran suites = run_shell("cd " + folder() + " && " + alone + " conformance x.so");
  EXPECT_EQ(suites.code, 3) << suites.output;
  expect_says(suites.output, {"drivetrain-conformance", "is not there", "cmake --install"});
}

}  // namespace
}  // namespace drivetrain::test
