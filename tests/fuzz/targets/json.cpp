// The JSON reader, under every config, manifest and index.
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

}  // namespace

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
