// The pieces of text that messages are made of.
#include <drivetrain/toolkit/text.h>
#include <drivetrain/toolkit/text/json_line.h>

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

TEST(Text, lists_are_joined_whatever_they_hold) {
  EXPECT_EQ(join(std::vector<std::string>{}), "");
  EXPECT_EQ(join(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(join(std::vector<std::string>{"a", "b", "c"}, " or "), "a or b or c");
  EXPECT_EQ(join(std::set<int64_t>{64, 32}), "32, 64");
}

TEST(Text, divisors_are_all_told_or_the_first_dozen) {
  EXPECT_EQ(divisors_text(1), "1");
  EXPECT_EQ(divisors_text(6), "1, 2, 3, 6");
  EXPECT_EQ(divisors_text(60), "1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60");
  EXPECT_EQ(divisors_text(64 * 9), "1, 2, 3, 4, 6, 8, 9, 12, 16, 18, 24, 32, ...");
}

TEST(Text, formatted_text_is_cut_at_its_limit) {
  EXPECT_EQ(formatted("%.1f %%", 12.34), "12.3 %");
  EXPECT_EQ(formatted("%s", std::string(2000, 'x').c_str()), std::string(511, 'x'));
}

TEST(Text, a_first_line_ends_before_the_line_break) {
  EXPECT_EQ(first_line("one\ntwo"), "one");
  EXPECT_EQ(first_line("one"), "one");
}

std::string problem_of(const std::string& line) {
  try {
    parse_json_line(line);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
    return e.what();
  }
  return "none";
}

TEST(JsonLine, reads_what_the_strict_reader_reads) {
  for (const char* text : {"null", " true ", "[]", "{}", "-0", "7", "-12.5e+3", "1E2", "\"\"",
                           R"([1, [2, {"a": []}], "x"])", R"({"a": {"b": "c"}, "d": [false]})",
                           R"("\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00é😀")", "9223372036854775807", "-9223372036854775808"})
    EXPECT_EQ(parse_json_line(text), parse_json(text, "x")) << text;
}

TEST(JsonLine, takes_what_python_takes_and_json_has_not) {
  EXPECT_TRUE(std::isnan(parse_json_line("NaN").as_double()));
  EXPECT_EQ(parse_json_line("[Infinity]").items().at(0).as_double(), HUGE_VAL);
  EXPECT_EQ(parse_json_line("-Infinity").as_double(), -HUGE_VAL);
  EXPECT_EQ(parse_json_line("1e999").as_double(), HUGE_VAL);
  EXPECT_EQ(parse_json_line("9223372036854775808").as_double(), 9223372036854775808.0);
  EXPECT_EQ(parse_json_line(R"({"a": 1, "a": 2})").members().size(), 2u);
  EXPECT_EQ(parse_json_line("\xef\xbb\xbf[1]").items().size(), 1u);
  EXPECT_EQ(parse_json_line(R"("\ud800x\udc00")").as_string(), "\xed\xa0\x80x\xed\xb0\x80");
}

TEST(JsonLine, names_what_is_wrong_and_its_column) {
  for (const auto& [text, column] : std::vector<std::pair<std::string, int>>{{"", 1},
                                                                             {"{\"a\": ", 7},
                                                                             {"{\"a\" 1}", 6},
                                                                             {"{a: 1}", 2},
                                                                             {"[1 2]", 4},
                                                                             {"[1,]", 4},
                                                                             {"01", 2},
                                                                             {"+1", 1},
                                                                             {".5", 1},
                                                                             {"1.", 3},
                                                                             {"1e", 3},
                                                                             {"nul", 1},
                                                                             {"\"a", 3},
                                                                             {"\"a\tb\"", 3},
                                                                             {"\"\\x\"", 3},
                                                                             {"\"\\u12g4\"", 6},
                                                                             {"{} {}", 4}})
    EXPECT_EQ(problem_of(text).find(concat("column ", column, ": not valid JSON: ")), 0u)
        << text << ": " << problem_of(text);
  EXPECT_NE(problem_of(std::string(5000, '[')).find("nested deeper"), std::string::npos);
  EXPECT_NE(problem_of(std::string("\xff\xfe{\0", 4)).find("UTF-16"), std::string::npos);
  EXPECT_NE(problem_of("\x1f\x8b\x08").find("packed"), std::string::npos);
}

TEST(JsonLine, what_is_used_has_one_meaning) {
  const Value line =
      parse_json_line(R"({"a": 1, "b": {"c": "x", "d": {"e": 2}}, "b.c": "whole", "a": 2, "s": "\ud800"})");
  EXPECT_EQ(used_member(line, "none", "it"), nullptr);
  EXPECT_EQ(used_member_at(line, "b.c", "it")->as_string(), "whole");
  EXPECT_EQ(used_member_at(line, "b.d.e", "it")->as_int(), 2);
  EXPECT_EQ(used_member_at(line, "b.x", "it"), nullptr);
  EXPECT_THROW(used_member(line, "a", "it"), Error);
  EXPECT_THROW(used_text(*line.find("s"), "s", "it"), Error);
  EXPECT_EQ(used_text(parse_json_line(R"("퟿")"), "s", "it"), "\xed\x9f\xbf")
      << "the last character before surrogates";
  EXPECT_EQ(used_text(parse_json_line("\"\xed\xa0\x80\""), "s", "it"), "\xed\xa0\x80") << "bytes, not an escape";
}

}  // namespace
}  // namespace drivetrain
