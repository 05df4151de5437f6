// Plugin libraries that are missing or broken, met by the program in a prefix that the test spoils.
#include "program/program_fixture.h"

namespace drivetrain::test {
namespace {

namespace fs = std::filesystem;

class Plugins : public ProgramTest {
 protected:
  // A copy of the build's prefix: bin, lib, plugins. Only the program is copied; libraries are linked by name.
  Plugins() {
    fs::create_directories(path("prefix/lib/drivetrain/plugins"));
    fs::create_directories(path("prefix/bin"));
    fs::copy(program(), path("prefix/bin/drivetrain"));
    fs::copy(DRIVETRAIN_BUILD_DIR "/lib/libdrivetrain.so", path("prefix/lib"));
    fs::copy(DRIVETRAIN_BUILD_DIR "/lib/drivetrain/commands", path("prefix/lib/drivetrain/commands"));
    for (const auto& entry : fs::directory_iterator(DRIVETRAIN_BUILD_DIR "/lib/drivetrain/plugins"))
      fs::copy(entry.path(), installed(entry.path().filename()));
  }
  std::string installed(const std::string& file) const { return path("prefix/lib/drivetrain/plugins/" + file); }
  void expect_refused_here(const std::string& arguments, const std::vector<std::string>& parts,
                           const std::string& environment = "") const {
    const std::set<std::string> before = files();
    const Ran ran = run_here(arguments, environment);
    EXPECT_EQ(ran.code, 3) << ran.output;
    expect_says(ran.output, parts);
    EXPECT_EQ(files(), before);
  }
  Ran run_here(const std::string& arguments, const std::string& environment = "") const {
    return run_shell("cd " + folder() + " && env " + environment + " prefix/bin/drivetrain train " + path("tiny.json") +
                     " " + arguments);
  }
  // The first bytes of a good library.
  void write_broken(const std::string& name) const {
    write(name, file_bytes(installed("optimizer_adamw.so")).substr(0, 3000));
  }
};

TEST_F(Plugins, a_deleted_library_gives_the_list_of_what_is_there_and_where_it_was_looked_for) {
  fs::remove(installed("optimizer_adamw.so"));
  expect_refused_here("", {"tiny.json:8:25", "no plugin optimizer/adamw is installed", "installed: muon, sgd",
                           "searched", path("prefix/lib/drivetrain/plugins"), "(installed)"});
  for (const char* library : {"optimizer_sgd.so", "optimizer_muon.so"}) fs::remove(installed(library));
  expect_refused_here("", {"no plugin optimizer/adamw is installed", "installed: none"});
}

TEST_F(Plugins, a_deleted_default_is_asked_for_by_its_section) {
  for (const char* library : {"communicator_local.so", "communicator_tcp.so", "communicator_mpi.so"})
    fs::remove(installed(library));  // the last is there where an MPI is
  expect_refused_here("", {"no communicator is given", "\"communicator\"", "installed: none"});
}

TEST_F(Plugins, a_misspelt_name_gets_the_nearest_one) {
  expect_refused_here("--set optimizer.type=adamv",
                      {"--set #1", "no plugin optimizer/adamv", "did you mean \"adamw\"?"});
}

TEST_F(Plugins, a_broken_library_on_the_path_is_named_when_it_is_missed) {
  write_broken("mine/optimizer_mine.so");
  expect_refused_here("--set optimizer.type=mine",
                      {"no plugin optimizer/mine is installed", path("mine"), "DRIVETRAIN_PLUGIN_PATH, entry 1",
                       "not usable: optimizer_mine.so refused: it is truncated", path("mine/optimizer_mine.so")},
                      "DRIVETRAIN_PLUGIN_PATH=" + path("mine"));
}

TEST_F(Plugins, a_broken_copy_of_an_installed_library_is_warned_of_not_passed_over_in_silence) {
  write_broken("mine/optimizer_adamw.so");
  const Ran ran = run_here("--plugin-path " + path("mine") + " --plugin-path " + path("nowhere"));
  EXPECT_EQ(ran.code, 0) << ran.output;
  expect_says(ran.output,
              {"warning: ", "optimizer_adamw.so refused: it is truncated", path("mine/optimizer_adamw.so")});
  expect_says(ran.output, {"warning: ", path("nowhere"), "--plugin-path, entry 2", "No such file"});
}

TEST_F(Plugins, a_library_of_another_build_is_refused_with_both_values) {
  std::string bytes = file_bytes(installed("attention_flash.so"));
  const size_t at = bytes.find("\"libtorch\":\"2.11.0");
  ASSERT_NE(at, std::string::npos);
  fs::create_directories(path("mine"));
  write("mine/attention_flash.so", bytes.replace(at, 18, "\"libtorch\":\"2.10.0"));
  expect_refused_here("",
                      {"attention/flash refused: built for a different LibTorch", path("mine/attention_flash.so"),
                       "DRIVETRAIN_PLUGIN_PATH, entry 1", "2.10.0", "2.11.0", "must match", "rebuild"},
                      "DRIVETRAIN_PLUGIN_PATH=" + path("mine"));
}

}  // namespace
}  // namespace drivetrain::test
