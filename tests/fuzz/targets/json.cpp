// The JSON reader, under every config, manifest and index; and that of lines of JSON.
#include <drivetrain/toolkit/text/json_line.h>
#include <drivetrain/value.h>

#include "all.h"
#include "scratch.h"

namespace drivetrain::fuzz {
namespace {

constexpr const char* kJsonPlace = "fuzz.json";

void read_json(const std::string& input) {
  const Value value = parse_json(input, kJsonPlace);
  for (const int indent : {0, 2}) FUZZ_CHECK(parse_json(value.to_json(indent), kJsonPlace) == value);
}

Inputs json_seeds() {
  return {source_file("configs/quickstart.json"),
          source_file("configs/zero3.json"),
          source_file("tests/golden/data/deepspeed_gpt2_zero3/ds_config.json"),
          "// a comment\n{\"a\": [1, -2.5e-3, 5e8, true, false, null, /* b */ \"\\u00e9\\n\\ud83d\\ude00\",],}",
          "\xEF\xBB\xBF{\"a\": {\"b\": {\"c\": [[[[]]]]}}}",
          "[0, -0, 0.1, 1e-320, 9223372036854775807, 123456789012345678901234567890.0]"};
}

// Whatever stands in a line, its keys can be looked up.
void read_json_line(const std::string& input) {
  const Value value = parse_json_line(input);
  if (value.is_object())
    for (const Value::Member& member : value.members()) used_member_at(value, member.key, "the line");
}

Inputs json_line_seeds() {
  return {
      R"({"messages": [{"role": "user", "content": "\u00e9\ud83d\ude00"}, {"role": "x", "content": "\\"}], "n": -1.5e-3})",
      "\xEF\xBB\xBF{\"a\": {\"b\": [NaN, Infinity, -Infinity, 1e999, 18446744073709551616]}}",
      R"({"text": "\ud800", "k": [true, false, null, [], {"a": 1, "a": 2}]})"};
}

}  // namespace

Target json_line_target() {
  return {"json_line",
          "lines of JSON",
          read_json_line,
          json_line_seeds,
          {"{", "}", "[", "]", ",", ":", "\"", "\\u0000", "\\ud800", "\\udc00", "null", "true", "1e999", "NaN", "-",
           "\xC3"}};
}

Target json_target() {
  return {"json",
          "JSON",
          read_json,
          json_seeds,
          {"{",       "}",       "[",    "]",    ",",     ":",   "\"",           "//", "/*",   "*/",
           "\\u0000", "\\ud800", "null", "true", "1e999", "NaN", "\xEF\xBB\xBF", "\n", "\xC3", "-"},
          kJsonPlace};
}

}  // namespace drivetrain::fuzz
