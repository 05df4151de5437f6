// What `drivetrain new-plugin` makes, for every kind, outside of the tree and against an installed prefix: it builds,
// passes the suite of its kind and trains, as it is. And a plugin that is built without CMake.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

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

// One build for all of them, as configuring takes longer than compiling most: each is a whole project and needs nothing
// of the others.
class NewPlugins : public testing::Test {
 protected:
  NewPlugins() {
    fs::remove_all(folder_), fs::create_directories(folder_);
    std::ofstream all(folder_ + "/CMakeLists.txt");
    all << "cmake_minimum_required(VERSION 3.25)\nproject(all LANGUAGES C CXX)\nenable_testing()\n";
    for (const std::string& kind : all_kinds()) all << "add_subdirectory(my_" << kind << ")\n";
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // Kept: the compiler's cache goes by the path of a source.
  const std::string folder_ = DRIVETRAIN_BUILD_DIR "/outside/every_kind";
};

TEST_F(NewPlugins, of_every_kind_build_pass_their_suite_and_train) {
  for (const std::string& kind : all_kinds()) {
    const Ran made = installed("new-plugin " + kind + " my_" + kind + " --dir " + folder_);
    ASSERT_EQ(made.code, 0) << made.output;
    for (const char* part : {"cmake -S ", "cmake --build ", " conformance "})
      EXPECT_NE(made.output.find(part), std::string::npos) << made.output;
    const std::string source = file_bytes(path("my_" + kind + "/my_" + kind + ".cpp"));
    EXPECT_NE(source, "") << kind;
    EXPECT_LE(std::count(source.begin(), source.end(), '\n'), 100) << kind << ": lines for an author to read";
    for (const auto& entry : fs::recursive_directory_iterator(path("my_" + kind)))
      for (const char* word : {"new_plugin", "NewPlugin", "plugin_kind", "sdk_version", "about_the_plugin"})
        if (entry.is_regular_file())
          EXPECT_EQ(file_bytes(entry.path()).find(word), std::string::npos) << entry.path() << " still has " << word;
  }
  const Ran configured =
      run_shell("cmake -G Ninja -S " + folder_ + " -B " + path("build") + " -DCMAKE_PREFIX_PATH=" + kStage +
                " -DCMAKE_CXX_COMPILER=" DRIVETRAIN_CXX " -DCMAKE_CXX_COMPILER_LAUNCHER=" DRIVETRAIN_CCACHE);
  ASSERT_EQ(configured.code, 0) << configured.output;
  const Ran built = run_shell("cmake --build " + path("build") + " -j 2");
  ASSERT_EQ(built.code, 0) << built.output;
  EXPECT_EQ(built.output.find("warning:"), std::string::npos) << built.output;
  const Ran tested = run_shell("ctest --test-dir " + path("build") + " -j 2 --no-tests=error --output-on-failure");
  EXPECT_EQ(tested.code, 0) << tested.output;
  for (const std::string& kind : all_kinds()) {
    EXPECT_NE(tested.output.find("conformance." + kind + ".my_" + kind), std::string::npos) << kind;
    if (kind == "checkpoint_format") continue;  // no config chooses one
    EXPECT_NE(tested.output.find("training." + kind + ".my_" + kind), std::string::npos) << kind;
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

TEST(Package, says_version_and_a_digest_for_every_kind) {
  const TempFolder temporary;
  std::ofstream(temporary / "CMakeLists.txt") << "cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES C CXX)\n"
                                                 "find_package(Drivetrain 0.1 REQUIRED)\n"
                                                 "message(STATUS \"version ${Drivetrain_VERSION}\")\n"
                                                 "foreach(kind ${Drivetrain_KINDS})\n"
                                                 "  message(STATUS \"${kind} ${Drivetrain_DIGEST_${kind}}\")\n"
                                                 "endforeach()\n";
  const Ran ran = run_shell("cmake -S " + temporary.path() + " -B " + (temporary / "b") +
                            " -G Ninja -DCMAKE_PREFIX_PATH=" + kStage + " -DCMAKE_CXX_COMPILER=" DRIVETRAIN_CXX);
  ASSERT_EQ(ran.code, 0) << ran.output;
  EXPECT_NE(ran.output.find("version 0.1."), std::string::npos) << ran.output;
  for (const std::string& kind : all_kinds()) {
    const size_t at = ran.output.find("-- " + kind + " ");
    ASSERT_NE(at, std::string::npos) << kind << " is not among Drivetrain_KINDS\n" << ran.output;
    const std::string digest = ran.output.substr(at + kind.size() + 4, 17);
    EXPECT_EQ(digest.find_first_not_of("0123456789abcdef"), 16u) << digest;
  }
}

}  // namespace
}  // namespace drivetrain::test
