#include "base/input_file.h"
#include "base/json_read.h"

namespace drivetrain {

namespace {

Value parse(const std::string& text, const std::string& file, const char* remedy) {
  Problems problems;
  Value value;
  Problem syntax;
  if (!read_json(text, file, JsonPositions::lines, value, syntax, problems))
    problems.add(syntax.where, syntax.message + remedy);
  problems.throw_if_any();
  return value;
}

}  // namespace

Value parse_json(const std::string& text, const std::string& file) { return parse(text, file, ""); }

Value read_json_file(const std::string& path) {
  return parse(
      read_text(path, InputKind::file, "a JSON file"), path,
      "\n   a JSON file was wanted, and this one is cut short, damaged or of another kind: mend it at this place, "
      "or bring it again from where it is whole");
}

}  // namespace drivetrain
