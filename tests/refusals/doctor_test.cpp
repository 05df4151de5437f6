// `drivetrain doctor`: what it says of right and wrong plugins and of limits of a machine, and its exit codes.
#include "doctor/checks.h"

#include "plugin_fixture.h"

namespace drivetrain {

class DoctorTest : public DoorTest {
 protected:
  std::string looked_at(const std::string& path) {
    findings = Findings();
    look_at_plugin_file(findings, path, only({}));
    return findings.text();
  }
  // The one finding about something; fails where there is none.
  const Finding& about(const std::string& name) const {
    for (const Finding& finding : findings.list())
      if (finding.about == name) return finding;
    ADD_FAILURE() << "nothing about " << name << " in\n" << findings.text();
    static const Finding none;
    return none;
  }
  Findings findings;
};

TEST_F(DoctorTest, a_right_plugin_is_in_order) {
  const std::string text = looked_at(built("good"));
  EXPECT_EQ(findings.exit_code(), 0) << text;
  expect_has(text, {"monitor/toy  does nothing", "libtorch", "headers", "monitor.h  ", "links", "libtorch", "symbols",
                    "are there", "opens", "yes, and its option tables are right",
                    "everything that was looked at is in order"});
}

TEST_F(DoctorTest, a_refused_plugin_is_not_opened_and_says_what_to_build_again) {
  const std::string text = looked_at(built("other_abi"));
  EXPECT_EQ(findings.exit_code(), 3) << text;
  EXPECT_EQ(about("cxx11_abi").level, Finding::problem);
  expect_has(about("cxx11_abi").text + about("cxx11_abi").remedy,
             {"plugin 0, runtime 1", "must match", "build it again against this SDK"});
  expect_has(about("opens").text, {"not tried"});
  looked_at(built("other_digest"));
  EXPECT_EQ(findings.exit_code(), 3);
  expect_has(about("monitor.h").text, {"plugin ", "runtime "});
  expect_has(about("monitor.h").remedy, {"build the sources that include it again"});
}

TEST_F(DoctorTest, missing_libraries_and_symbols_are_named_with_the_remedy) {
  looked_at(built("missing_library"));
  EXPECT_EQ(findings.exit_code(), 3);
  expect_has(about("links").text, {"not found: librefusals_gone.so", "looked in"});
  expect_has(about("links").remedy, {"install what is missing", "RPATH"});
  looked_at(built("missing_symbol"));
  expect_has(about("symbols").text, {"1 is in no library that it links", "drivetrain::nobody_has_this(int)"});
  expect_has(about("symbols").remedy, {"build it again against this SDK"});
  expect_has(about("opens").text, {"cannot be opened", "nobody_has_this"});
}

TEST_F(DoctorTest, what_is_no_plugin) {
  looked_at(write("text.so", "x"));
  EXPECT_EQ(findings.exit_code(), 3);
  expect_has(about("refused").text, {"text.so refused: it is not an ELF file"});
}

TEST_F(DoctorTest, refused_and_shadowed_files_of_the_search_path_are_listed) {
  copy("good", "one/monitor_good.so"), copy("good", "two/monitor_good.so"), write("two/broken.so", "no library");
  const SearchPath search = only({folder("one"), folder("two")});
  look_at_plugins(findings, search, Registry(search));
  EXPECT_EQ(findings.exit_code(), 3);
  expect_has(findings.text(), {"searched", "one (DRIVETRAIN_PLUGIN_PATH, entry 1)", "problem", "broken.so refused",
                               "warning", "shadowed by", "monitor ", "toy", "nothing is installed for"});
}

TEST_F(DoctorTest, a_place_that_cannot_be_written_is_a_problem_of_the_machine) {
  look_at_machine(findings, write("file", "") + "/runs", 1);
  expect_has(findings.text(), {"processors", "memory", "files", "time", "disk"});
  const Finding disk = about("disk");
  EXPECT_EQ(disk.level, Finding::ok) << "the folder above the file is taken: " << disk.text;
  findings = Findings();
  look_at_machine(findings, "/proc/nowhere/runs", 1);
  EXPECT_EQ(about("disk").level, Finding::problem);
  expect_has(about("disk").text + about("disk").remedy, {"/proc cannot be written", "--set output_dir=FOLDER"});
  EXPECT_EQ(findings.exit_code(), 2);
}

TEST_F(DoctorTest, as_json_every_finding_has_its_level_part_and_remedy) {
  looked_at(built("missing_library"));
  const Value value = parse_json(findings.to_value().to_json(), "doctor");
  EXPECT_EQ(value.find("exit_code")->as_int(), 3);
  EXPECT_GE(value.find("problems")->as_int(), 1);
  bool told = false;
  for (const Value& one : value.find("findings")->items())
    told = told || (one.find("about")->as_string() == "links" && one.find("level")->as_string() == "problem" &&
                    one.find("remedy"));
  EXPECT_TRUE(told);
}

TEST_F(DoctorTest, limits_are_read_and_make_sense) {
  const ProcessorLimits processors = processor_limits();
  EXPECT_GE(processors.cores, processors.share.usable());
  EXPECT_GE(processors.share.usable(), 1);
  const MemoryLimits memory = memory_limits();
  EXPECT_GT(memory.total, 1e8);
  EXPECT_LE(memory.free(), memory.total + memory.swap);
  EXPECT_GT(file_limits().open_now, 3u);
  const DiskPlace disk = disk_place(scratch_ / "not" / "yet");
  EXPECT_EQ(disk.folder, scratch_.string());
  EXPECT_TRUE(disk.unwritable.empty() && disk.free > 0 && disk.free <= disk.total);
  EXPECT_TRUE(std::filesystem::is_empty(scratch_)) << "the file that was tried is gone";
}

}  // namespace drivetrain
