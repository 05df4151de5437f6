#include "data_tools/json_line.h"

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text/json_line.h>

namespace drivetrain {

std::string read_json_line(std::string_view line, const std::string& key, std::string& text) {
  try {
    const Value value = parse_json_line(line);
    if (!value.is_object()) return "is no JSON object";
    const Value* const found = used_member_at(value, key, "the line");
    if (!found) return concat("has no \"", key, "\"");
    if (!found->is_string()) return concat("\"", key, "\" is no text");
    text = used_text(*found, key, "the line");
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace drivetrain
