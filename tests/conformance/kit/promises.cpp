#include <drivetrain/testkit/kit/promises.h>

#include <map>
#include <sstream>
#include <utility>

namespace drivetrain::test {
namespace promise_list {

// "[kind]" and the lines of its file, one kind after the other.
constexpr const char* kText =
#include "promises.inc"
    ;

std::map<std::pair<std::string, std::string>, Promise> read() {
  std::map<std::pair<std::string, std::string>, Promise> list;
  std::istringstream text(kText);
  std::string kind;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("[")) kind = line.substr(1, line.find(']') - 1);
    const size_t first = line.find(" | "), second = line.find(" | ", first + 3);
    if (second == std::string::npos) continue;
    list[{kind, line.substr(0, first)}] = {line.substr(first + 3, second - first - 3), line.substr(second + 3)};
  }
  return list;
}

const std::map<std::pair<std::string, std::string>, Promise>& all() {
  static const auto list = read();
  return list;
}

}  // namespace promise_list

Promise promise_of(const std::string& kind, const std::string& name) {
  const auto found = promise_list::all().find({kind, name});
  return found == promise_list::all().end() ? Promise{} : found->second;
}

std::vector<std::string> promised_cases(const std::string& kind) {
  std::vector<std::string> names;
  for (const auto& [key, promise] : promise_list::all())
    if (key.first == kind) names.push_back(key.second);
  return names;
}

}  // namespace drivetrain::test
