// Every file of files/ gets the verdict of verdicts.json, with the keys it has to name, at its line. README.md shows
// them.
#include <gtest/gtest.h>

#include <drivetrain/error.h>

#include "deepspeed/check_layers.h"

namespace drivetrain::test {
namespace {

const std::string kFolder = std::string(DRIVETRAIN_SOURCE_DIR) + "/tests/deepspeed/";

std::string text_of(const Value& report, const char* list) {
  std::string text;
  for (const Value& one : report.find(list)->items()) {
    if (one.is_string()) text += one.as_string() + "\n";
    for (const char* key : {"message", "key", "value"})
      if (const Value* part = one.find(key)) text += part->as_string() + "\n";
  }
  return text;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Without the folder of this checkout and the run above the file.
std::string without_places(std::string text) {
  for (size_t at; (at = text.find(kFolder + "files/")) != std::string::npos;) text.erase(at, kFolder.size() + 6);
  if (text.starts_with("run")) text.erase(0, text.find("  ") + 2);
  return text;
}

// What a user reads first: the first problem, or what was said besides.
std::string said_of(const Value& report) {
  const auto& problems = report.find("problems")->items();
  if (!problems.empty()) return without_places(first_line(problems.front().find("message")->as_string()));
  const size_t settled = report.find("settled")->items().size(), notes = report.find("notes")->items().size();
  return concat(notes, notes == 1 ? " note, " : " notes, ", settled, settled == 1 ? " value" : " values", " by rules");
}

class Verdicts : public ::testing::Test {
 protected:
  Verdicts() : expected_(read_json_file(kFolder + "verdicts.json")) {
    std::vector<std::string> paths;
    for (const Value::Member& m : expected_.members()) paths.push_back(kFolder + "files/" + m.key);
    reports_ = check_files(folder_, paths);
  }
  const TempFolder folder_;
  const Value expected_;
  Value reports_;
};

void expect_names(const std::string& file, const std::string& text, const Value* names) {
  if (!names) return;
  for (const Value& name : names->items())
    EXPECT_NE(text.find(name.as_string()), std::string::npos)
        << file << " does not name " << name.as_string() << " in\n"
        << text;
}

bool has_line(const Value& report, int64_t line) {
  for (const Value& problem : report.find("problems")->items()) {
    const Value* const found = problem.find("line");
    if (found && found->as_int() == line) return true;
  }
  return false;
}

TEST_F(Verdicts, every_file_is_taken_or_refused_as_it_should_be_and_its_keys_are_named) {
  ASSERT_GE(expected_.members().size(), 60u);
  ASSERT_EQ(reports_.items().size(), expected_.members().size());
  for (size_t i = 0; i < reports_.items().size(); ++i) {
    const auto& [file, wanted] = expected_.members()[i];
    const Value& report = reports_.items()[i];
    const std::string problems = text_of(report, "problems");
    EXPECT_EQ(report.find("verdict")->as_string(), wanted.find("verdict")->as_string()) << file << "\n" << problems;
    if (const Value* code = wanted.find("code")) EXPECT_EQ(report.find("code")->as_int(), code->as_int()) << file;
    if (const Value* line = wanted.find("line"))
      EXPECT_TRUE(has_line(report, line->as_int())) << file << "\n" << problems;
    expect_names(file, problems, wanted.find("names"));
    expect_names(file, text_of(report, "notes"), wanted.find("notes"));
    expect_names(file, text_of(report, "settled"), wanted.find("settled"));
  }
}

TEST_F(Verdicts, the_table_in_the_readme_is_this_one) {
  std::string table = "| file | verdict | said |\n| --- | --- | --- |\n";
  for (size_t i = 0; i < reports_.items().size(); ++i) {
    const Value& report = reports_.items()[i];
    std::string said = said_of(report);
    for (size_t at = 0; (at = said.find('|', at)) != std::string::npos; at += 2) said.replace(at, 1, "\\|");
    table += concat("| ", expected_.members()[i].key, " | ", report.find("verdict")->as_string(), " | ", said, " |\n");
  }
  const std::string made = std::string(DRIVETRAIN_BUILD_DIR) + "/deepspeed_verdicts.md";
  std::ofstream(made) << table;
  EXPECT_NE(file_bytes(kFolder + "README.md").find(table), std::string::npos)
      << "tests/deepspeed/README.md has another table; the one of this build is " << made;
}

}  // namespace
}  // namespace drivetrain::test
