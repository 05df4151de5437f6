// What `drivetrain new-plugin` makes, outside of the tree and against an installed prefix. It builds, passes the suite
// of its kind and trains, as it is: of every kind in tests/templates, of some here. And a plugin built without CMake.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "plugin/kinds.h"
#include "support/run_program.h"

namespace drivetrain::test {
namespace {

namespace fs = std::filesystem;

const std::string kStage = DRIVETRAIN_BUILD_DIR "/stage";

Ran installed(const std::string& words) { return run_shell(kStage + "/bin/drivetrain " + words); }

std::vector<std::string> all_kinds() {
  std::vector<std::string> kinds;
  for (const KindRule& rule : kind_rules()) kinds.push_back(rule.kind);
  std::sort(kinds.begin(), kinds.end());
  return kinds;
}

// On the toolkit, one with a run of two ranks and one without a run. On the contract alone: the lr_schedule below.
const std::vector<std::string> kBuiltHere = {"schedule", "checkpoint_format"};

// Every kind is made, some are built: in one build, in which each is a whole project and needs nothing of the others.
class NewPlugins : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    fs::remove_all(kFolder), fs::create_directories(kFolder + "/package");
    for (const std::string& kind : all_kinds())
      made_[kind] = installed("new-plugin " + kind + " my_" + kind + " --dir " + kFolder);
    std::ofstream(kFolder + "/package/CMakeLists.txt") << "find_package(Drivetrain 0.1 REQUIRED)\n"
                                                          "message(STATUS \"version ${Drivetrain_VERSION}\")\n"
                                                          "foreach(kind ${Drivetrain_KINDS})\n"
                                                          "  message(STATUS \"${kind} ${Drivetrain_DIGEST_${kind}}\")\n"
                                                          "endforeach()\n";
    std::ofstream all(kFolder + "/CMakeLists.txt");
    all << "cmake_minimum_required(VERSION 3.25)\nproject(all LANGUAGES C CXX)\nenable_testing()\n"
           "add_subdirectory(package)\n";
    for (const std::string& kind : kBuiltHere) all << "add_subdirectory(my_" << kind << ")\n";
    all.close();
    configured_ =
        run_shell("cmake -G Ninja -S " + kFolder + " -B " + kFolder + "/build -DCMAKE_PREFIX_PATH=" + kStage +
                  " -DCMAKE_CXX_COMPILER=" DRIVETRAIN_CXX " -DCMAKE_CXX_COMPILER_LAUNCHER=" DRIVETRAIN_CCACHE);
  }
  void SetUp() override { ASSERT_EQ(configured_.code, 0) << configured_.output; }

  // Kept: the compiler's cache goes by the path of a source.
  inline static const std::string kFolder = DRIVETRAIN_BUILD_DIR "/outside/every_kind";
  inline static std::map<std::string, Ran> made_;
  inline static Ran configured_;
};

// What tests/templates has compiled and run is what the installed program makes: plugin, config and project of a kind.
TEST_F(NewPlugins, of_every_kind_are_those_that_were_tested_in_the_tree) {
  for (const std::string& kind : all_kinds()) {
    const Ran& made = made_[kind];
    ASSERT_EQ(made.code, 0) << made.output;
    for (const char* part : {"cmake -S ", "cmake --build ", " conformance "})
      EXPECT_NE(made.output.find(part), std::string::npos) << made.output;
    const std::string folder = kFolder + "/my_" + kind,
                      tested = DRIVETRAIN_BUILD_DIR "/tests/templates/made/my_" + kind;
    const std::string source = file_bytes(folder + "/my_" + kind + ".cpp");
    EXPECT_NE(source, "") << kind;
    EXPECT_LE(std::count(source.begin(), source.end(), '\n'), 100) << kind << ": lines for an author to read";
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      for (const char* word : {"new_plugin", "NewPlugin", "plugin_kind", "sdk_version", "about_the_plugin"})
        EXPECT_EQ(file_bytes(entry.path()).find(word), std::string::npos) << entry.path() << " still has " << word;
    }
    size_t compared = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename();
      if (entry.is_directory() || name == "README.md" || name == ".gitignore") continue;
      EXPECT_EQ(file_bytes(entry.path()), file_bytes(tested + "/" + name)) << kind << ": another " << name;
      ++compared;
    }
    EXPECT_EQ(compared, kind == "checkpoint_format" ? 2u : 3u)
        << kind << ": source, project, and config where one trains";
  }
}

// The tree has these headers in other places than the package.
TEST_F(NewPlugins, of_every_kind_include_what_is_installed) {
  for (const std::string& kind : all_kinds()) {
    std::istringstream source(file_bytes(kFolder + "/my_" + kind + "/my_" + kind + ".cpp"));
    int seen = 0;
    for (std::string line; std::getline(source, line);) {
      if (line.rfind("#include <drivetrain/", 0) != 0) continue;
      const std::string header = line.substr(10, line.find('>') - 10);
      EXPECT_TRUE(fs::is_regular_file(kStage + "/include/" + header)) << kind << ": " << header;
      ++seen;
    }
    EXPECT_GT(seen, 0) << kind;
  }
}

TEST_F(NewPlugins, build_pass_their_suite_and_train) {
  const Ran built = run_shell("cmake --build " + kFolder + "/build -j 2");
  ASSERT_EQ(built.code, 0) << built.output;
  EXPECT_EQ(built.output.find("warning:"), std::string::npos) << built.output;
  const Ran tested = run_shell("ctest --test-dir " + kFolder + "/build -j 2 --no-tests=error --output-on-failure");
  EXPECT_EQ(tested.code, 0) << tested.output;
  for (const std::string& kind : kBuiltHere) {
    EXPECT_NE(tested.output.find("conformance." + kind + ".my_" + kind), std::string::npos) << kind;
    if (kind == "checkpoint_format") continue;  // no config chooses one
    EXPECT_NE(tested.output.find("training." + kind + ".my_" + kind), std::string::npos) << kind;
  }
}

TEST_F(NewPlugins, find_version_and_a_digest_for_every_kind_in_the_package) {
  const std::string& output = configured_.output;
  EXPECT_NE(output.find("version 0.1."), std::string::npos) << output;
  for (const std::string& kind : all_kinds()) {
    const size_t at = output.find("-- " + kind + " ");
    ASSERT_NE(at, std::string::npos) << kind << " is not among Drivetrain_KINDS\n" << output;
    const std::string digest = output.substr(at + kind.size() + 4, 17);
    EXPECT_EQ(digest.find_first_not_of("0123456789abcdef"), 16u) << digest;
  }
}

// The three commands as they are printed, in folders whose names a shell has to be told.
TEST(NewPlugin, the_three_commands_that_it_prints_are_enough) {
  const TempFolder temporary;
  fs::create_directory(temporary / "it's here");
  const Ran made = installed("new-plugin lr_schedule steps --dir \"" + (temporary / "it's here") + "\"");
  ASSERT_EQ(made.code, 0) << made.output;
  const std::string commands = made.output.substr(made.output.find("Next:\n") + 6);
  const Ran ran = run_shell("set -e; export CMAKE_CXX_COMPILER_LAUNCHER=" DRIVETRAIN_CCACHE "\n" + commands);
  EXPECT_EQ(ran.code, 0) << commands << ran.output;
  EXPECT_NE(ran.output.find("[  PASSED  ]"), std::string::npos) << ran.output;
}

constexpr const char* kOneSource = R"(#include <drivetrain/lr_schedule.h>
#include <drivetrain/toolkit/manifest.h>

class Tenth : public drivetrain::LrSchedule {
 public:
  Tenth(const drivetrain::NoOptions&, const drivetrain::Services&) {}
  drivetrain::Hyper at(const drivetrain::Progress&, const drivetrain::Hyper& base) const override {
    drivetrain::Hyper hyper = base;
    hyper.lr *= 0.1;
    return hyper;
  }
};

DRIVETRAIN_MANIFEST("lr_schedule", "tenth", "1.2.3", "MIT", "a tenth of the rate")
DRIVETRAIN_PLUGIN(drivetrain::LrSchedule, "tenth", Tenth)
)";

TEST(WithoutCMake, one_command_with_pkg_config_makes_a_plugin) {
  const TempFolder temporary;
  std::ofstream(temporary / "tenth.cpp") << kOneSource;
  const std::string library = temporary / "lr_schedule_tenth.so";
  const Ran built = run_shell("cd " + temporary.path() + " && PKG_CONFIG_PATH=" + kStage +
                              "/lib/pkgconfig && export PKG_CONFIG_PATH && " DRIVETRAIN_CXX " -O2 -Wall tenth.cpp -o " +
                              library + " $(pkg-config --cflags --libs drivetrain)");
  ASSERT_EQ(built.code, 0) << built.output;
  const Ran shown = installed("inspect " + library);
  EXPECT_EQ(shown.code, 0) << shown.output;
  for (const char* part : {"lr_schedule/tenth  a tenth of the rate", "1.2.3", "may be used"})
    EXPECT_NE(shown.output.find(part), std::string::npos) << shown.output;
  const Ran tested = installed("conformance " + library);
  EXPECT_EQ(tested.code, 0) << tested.output;
  const Ran toolkit = run_shell("PKG_CONFIG_PATH=" + kStage + "/lib/pkgconfig pkg-config --libs drivetrain-toolkit");
  EXPECT_NE(toolkit.output.find("-l:libdrivetrain_toolkit.a"), std::string::npos) << toolkit.output;
}

}  // namespace
}  // namespace drivetrain::test
