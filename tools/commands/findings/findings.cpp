#include "findings/findings.h"

#include <algorithm>
#include <sstream>

namespace drivetrain {
namespace {

constexpr const char* kLevels[] = {"ok", "warning", "problem"};
constexpr const char* kRemedy = "\n   ";  // where errors put theirs

std::string padded(const std::string& text, size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 1, ' ');
}

// The first line beside its name, the others below it.
std::string block(const std::string& text, size_t indent) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    if (!out.empty()) out += "\n" + std::string(indent, ' ');
    out += line.substr(std::min(line.find_first_not_of(' '), line.size()));
  }
  return out;
}

std::string counted(size_t count, const char* what) { return concat(count, " ", what, count == 1 ? "" : "s"); }

}  // namespace

void Findings::add_error(const std::string& about, const Error& e) {
  const std::string text = e.what();
  const size_t remedy = text.rfind(kRemedy);
  const bool told = remedy != std::string::npos;
  problem(about, text.substr(0, remedy), told ? text.substr(remedy + std::string(kRemedy).size()) : "", e.code());
}

size_t Findings::count(Finding::Level level) const {
  return static_cast<size_t>(
      std::count_if(list_.begin(), list_.end(), [&](const Finding& f) { return f.level == level; }));
}

int Findings::exit_code() const {
  const auto any_of_code = [this](ErrorCode code) {
    return std::any_of(list_.begin(), list_.end(),
                       [&](const Finding& f) { return f.level == Finding::problem && f.code == code; });
  };
  for (const ErrorCode code : {ErrorCode::communication, ErrorCode::plugin})
    if (any_of_code(code)) return static_cast<int>(code);
  return count(Finding::problem) > 0 ? static_cast<int>(ErrorCode::config) : 0;
}

std::string Findings::text() const {
  size_t width = 0;
  for (const Finding& finding : list_) width = std::max(width, finding.about.size() + 2);
  const size_t indent = 11 + width;
  std::string text, part;
  for (const Finding& finding : list_) {
    if (finding.part != part) text += finding.part + "\n";
    part = finding.part;
    text +=
        "  " + padded(kLevels[finding.level], 9) + padded(finding.about, width) + block(finding.text, indent) + "\n";
    if (!finding.remedy.empty()) text += std::string(indent, ' ') + "-> " + block(finding.remedy, indent + 3) + "\n";
  }
  const size_t problems = count(Finding::problem), warnings = count(Finding::warning);
  if (problems + warnings == 0) return text + "everything that was looked at is in order\n";
  return text + counted(problems, "problem") + ", " + counted(warnings, "warning") + "\n";
}

Value Findings::to_value() const {
  Value list = Value::array();
  for (const Finding& finding : list_) {
    Value one = Value::object();
    one.set("level", kLevels[finding.level]);
    one.set("part", finding.part);
    one.set("about", finding.about);
    one.set("found", finding.text);
    if (!finding.remedy.empty()) one.set("remedy", finding.remedy);
    if (finding.level == Finding::problem) one.set("code", static_cast<int>(finding.code));
    list.items().push_back(std::move(one));
  }
  Value value = Value::object();
  value.set("exit_code", exit_code());
  value.set("problems", static_cast<int64_t>(count(Finding::problem)));
  value.set("warnings", static_cast<int64_t>(count(Finding::warning)));
  value.set("findings", std::move(list));
  value.set("facts", facts_);
  return value;
}

}  // namespace drivetrain
