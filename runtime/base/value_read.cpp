#include "base/input_file.h"
#include "base/json_read.h"

namespace drivetrain {

Value parse_json(const std::string& text, const std::string& file) {
  Problems problems;
  Value value;
  Problem syntax;
  if (!read_json(text, file, JsonPositions::lines, value, syntax, problems)) problems.add(syntax.where, syntax.message);
  problems.throw_if_any();
  return value;
}

Value read_json_file(const std::string& path) {
  return parse_json(read_text(path, InputKind::file, "a JSON file"), path);
}

}  // namespace drivetrain
