// JSON in and out of Values: exact numbers, positions, and every refusal with its message.
#include <cmath>
#include <limits>

#include "config_test_support.h"

namespace drivetrain {
namespace {

Value parse(const std::string& text) { return parse_json(text, "a.json"); }

std::string parse_error(const std::string& text) {
  return config_error_of([&] { parse(text); });
}

TEST(Value, Comments_and_trailing_commas_are_read) {
  const Value v = parse("// first\n{ /* a */ \"a\": [1, 2,], // b\n \"b\": {\"c\": true,},\n}\n// end");
  EXPECT_EQ(v.to_json(), R"({"a":[1,2],"b":{"c":true}})");
}

TEST(Value, A_comment_without_an_end_is_refused) {
  for (const char* text : {"{ /* a", "{\"a\": 1, /* b", "{\"a\": 1 /*", "/* a", "{\"a\" /* b *"})
    EXPECT_NE(parse_error(text).find("not valid JSON: a comment without its end"), std::string::npos)
        << parse_error(text);
}

TEST(Value, A_byte_order_mark_is_skipped) {
  const Value v = parse("\xEF\xBB\xBF{\"a\": 1}");
  EXPECT_EQ(v.find("a")->key_where.column, 2);
}

TEST(Value, Positions_are_those_of_the_first_character) {
  const Value v =
      parse("{\n  \"a\": 1, /* : \" */ \"b\" :\n    [10, {\"c\\\"\": \"x\"}],\n\t\"ü\": -2.5e3, \"d\": null}");
  EXPECT_EQ(v.where.text(), "a.json:1:1");
  EXPECT_EQ(v.find("a")->key_where.text(), "a.json:2:3");
  EXPECT_EQ(v.find("a")->where.text(), "a.json:2:8");
  EXPECT_EQ(v.find("b")->key_where.text(), "a.json:2:21");
  EXPECT_EQ(v.find("b")->where.text(), "a.json:3:5");
  EXPECT_EQ(v.find("b")->items()[1].where.text(), "a.json:3:10");
  EXPECT_EQ(v.find("b")->items()[1].find("c\"")->where.text(), "a.json:3:18");
  EXPECT_EQ(v.find("ü")->where.text(), "a.json:4:7");
  EXPECT_EQ(v.find("d")->key_where.text(), "a.json:4:15");  // columns count characters, not bytes
}

TEST(Value, Integers_may_be_written_with_exponent_or_fraction) {
  EXPECT_EQ(parse("5e8").as_int(), 500'000'000);
  EXPECT_EQ(parse("3.0").as_int(), 3);
  EXPECT_FALSE(parse("5e8").is_int());
  EXPECT_EQ(parse("9223372036854775807").as_int(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(parse("-9223372036854775808").as_int(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(config_error_of([] { parse("2.5").as_int(); }), "a.json:1:1  expected integer, found number 2.5");
  EXPECT_EQ(config_error_of([] { parse("1e19").as_int(); }), "a.json:1:1  1e+19 is out of range for an integer");
}

TEST(Value, Numbers_round_trip_bit_for_bit_and_doubles_stay_doubles) {
  for (const double x : {0.1, 1e-8, 3.0, -0.0, 1e22, 5e-324, 1.7976931348623157e308, 1.0 / 3, 5e8, 123456789.125}) {
    const Value back = parse(Value(x).to_json());
    EXPECT_FALSE(back.is_int()) << Value(x).to_json();
    EXPECT_EQ(back.as_double(), x);
    EXPECT_EQ(std::signbit(back.as_double()), std::signbit(x));
  }
  EXPECT_EQ(Value(3.0).to_json(), "3.0");
  EXPECT_EQ(Value(0.001).to_json(), "0.001");
  EXPECT_EQ(Value(int64_t{1} << 62).to_json(), "4611686018427387904");
  EXPECT_EQ(Value(std::nan("")).to_json(), "null");
}

TEST(Value, Text_round_trips_with_escapes_and_order) {
  const std::string text = R"({"z":"a\"\\\n\u0001ü","a":[],"m":{}})";
  EXPECT_EQ(parse(text).to_json(), text);
  EXPECT_EQ(parse(parse(text).to_json(2)), parse(text));
  EXPECT_EQ(parse(R"({"a":[1,2],"b":{"c":1}})").to_json(2), "{\n  \"a\": [1, 2],\n  \"b\": {\n    \"c\": 1\n  }\n}");
}

TEST(Value, Set_replaces_or_appends_and_erase_removes) {
  Value v;
  v.set("a", 1);
  v.set("b", 2);
  v.set("a", "x");
  EXPECT_EQ(v.to_json(), R"({"a":"x","b":2})");
  EXPECT_TRUE(v.erase("a"));
  EXPECT_FALSE(v.erase("a"));
  EXPECT_EQ(v.find("a"), nullptr);
  EXPECT_EQ(Value(3).find("a"), nullptr);
}

TEST(Value, Wrong_types_name_position_and_both_types) {
  const Value v = parse("{\"a\": [1, \"two\"],\n \"b\": {}}");
  EXPECT_EQ(config_error_of([&] { v.find("a")->items()[1].as_int(); }),
            "a.json:1:11  expected integer, found string \"two\"");
  EXPECT_EQ(config_error_of([&] { v.find("b")->as_bool(); }), "a.json:2:7  expected boolean, found object");
  EXPECT_EQ(config_error_of([] { Value().as_string(); }), "expected string, found null");
}

TEST(Value, Duplicate_keys_are_refused_at_every_level_with_both_positions) {
  EXPECT_EQ(parse_error("{\"a\": 1,\n \"b\": {\"c\": 1,\n  \"c\": 2},\n \"a\": 3}"),
            "a.json:3:3  key \"c\" is given twice; the first is at a.json:2:8\n   remove one of them\n"
            "a.json:4:2  key \"a\" is given twice; the first is at a.json:1:2\n   remove one of them");
}

// The JSON reader takes the second half of a surrogate pair alone, which is no character and could not be written.
TEST(Value, Half_a_character_is_refused_in_keys_and_values) {
  for (const char* text : {R"({"a": "x\ude00"})", R"({"\udfff": 1})", R"(["\udc00\ud83d"])", R"(["\ud83d"])"})
    EXPECT_NE(parse_error(text), "") << text;
  EXPECT_HAS(parse_error(R"({"a": "x\ude00"})"), "a.json:1:7  ");
  EXPECT_HAS(parse_error(R"({"a": "x\ude00"})"), "half of a character");
  EXPECT_EQ(parse_json(R"("\ud83d\ude00 \ud7ff")", "a.json").as_string(), "\xF0\x9F\x98\x80 \xED\x9F\xBF");
}

TEST(Value, Syntax_errors_say_where_and_what_was_found) {
  EXPECT_HAS(parse_error("{\"a\": 1\n \"b\": 2}"), "a.json:2:2  not valid JSON: missing a comma or '}'");
  EXPECT_HAS(parse_error("{\"a\": 1\n \"b\": 2}"), "found `\"b\": 2}`");
  EXPECT_HAS(parse_error("{\"a\": \"x}\n"), "a.json:1:7  not valid JSON: a string may not hold a line break");
  EXPECT_HAS(parse_error("{\"a\": \"x}"), "a.json:1:7  not valid JSON: missing a closing quotation mark");
  EXPECT_HAS(parse_error("{\"a\": 1}\n]"), "a.json:2:1  not valid JSON: the document root must not be followed");
  EXPECT_HAS(parse_error(""), "a.json:1:1  not valid JSON: the document is empty; found the end of the text");
  EXPECT_HAS(parse_error("{\"a\": 1"), "found the end of the text");
  EXPECT_HAS(parse_error("{\"a\": True}"), "write true");
  EXPECT_HAS(parse_error("{'a': 1}"), "not valid JSON: missing a name for object member");
  EXPECT_HAS(parse_error("{\"a\": 01}"), "not valid JSON");
  EXPECT_HAS(parse_error("{\"a\": \"\xFF\"}"), "not valid JSON");
}

TEST(Value, Numbers_must_be_finite_and_in_range) {
  for (const char* text : {"NaN", "Infinity", "-Infinity", "nan"}) {
    EXPECT_HAS(parse_error(concat("[", text, "]")), "numbers must be finite");
  }
  EXPECT_EQ(parse_error("[9223372036854775808]"),
            "a.json:1:2  number 9223372036854775808 is out of range for a 64-bit integer");
  EXPECT_HAS(parse_error("[1e999]"),
             "a.json:1:2  not valid JSON: number too big to be stored in double; found `1e999]`");
}

TEST(Value, Nesting_ends_at_128_levels) {
  EXPECT_NO_THROW(parse(std::string(128, '[') + std::string(128, ']')));
  EXPECT_EQ(parse_error(std::string(129, '[') + std::string(129, ']')), "a.json:1:129  nested deeper than 128 levels");
  EXPECT_EQ(parse_error(std::string(1'000'000, '[')), "a.json:1:129  nested deeper than 128 levels");
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += "{\"a\":";
  EXPECT_HAS(parse_error(objects), "nested deeper than 128 levels");
}

class ValueFile : public ConfigFiles {};

TEST_F(ValueFile, Missing_files_and_folders_are_refused_by_name) {
  const std::string missing = (folder_ / "none.json").string();
  EXPECT_EQ(config_error_of([&] { read_json_file(missing); }),
            missing + ": cannot be opened: No such file or directory\n   check the path");
  EXPECT_EQ(config_error_of([&] { read_json_file(folder_.string()); }),
            folder_.string() + ": is a folder; a JSON file was wanted\n   name a file");
}

TEST_F(ValueFile, A_file_gives_its_name_to_positions) {
  const std::string path = write("x.json", "{\"a\": 1}");
  EXPECT_EQ(read_json_file(path).find("a")->where.text(), path + ":1:7");
}

TEST(Errors, Within_puts_the_place_in_front_and_keeps_the_code) {
  const Error e = fail(ErrorCode::numeric, "loss is ", 3).within("optimizer/x");
  EXPECT_STREQ(e.what(), "in optimizer/x: loss is 3");
  EXPECT_EQ(e.code(), ErrorCode::numeric);
}

}  // namespace
}  // namespace drivetrain
