#include "checkpoint_tools/tool_text.h"

#include <cmath>
#include <ctime>

#include <drivetrain/toolkit/text.h>

#include "checkpoint_tools/stored_run.h"

namespace drivetrain {
namespace {

std::string utc(double seconds, const char* form) {
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm parts = {};
  char text[64];
  if (!gmtime_r(&whole, &parts) || std::strftime(text, sizeof text, form, &parts) == 0) return "?";
  return text;
}

}  // namespace

std::string utc_text(double seconds) { return utc(seconds, "%Y-%m-%d %H:%M:%S"); }
std::string utc_json_text(double seconds) { return utc(seconds, "%Y-%m-%dT%H:%M:%SZ"); }
std::string megabytes(uint64_t bytes) { return formatted("%.1f MB", static_cast<double>(bytes) / 1e6); }
std::string short_number(double x) { return formatted("%.6g", x); }

std::string shape_text(const std::vector<int64_t>& shape) { return "[" + join(shape) + "]"; }

std::string counted(size_t n, const std::string& noun) { return concat(n, " ", noun, n == 1 ? "" : "s"); }

Value number_value(double x) { return std::isfinite(x) ? Value(x) : Value(formatted("%g", x)); }

Value strings_value(const std::vector<std::string>& strings) {
  return Value(Value::Array(strings.begin(), strings.end()));
}

Value count_value(uint64_t n) { return Value(static_cast<int64_t>(n)); }

std::string ranks_text(const Value& facts) {
  const Value* const world = fact(facts, {"run", "world_size"});
  if (!world) return "";
  std::vector<std::string> axes;
  if (const Value* const mesh = fact(facts, {"run", "mesh"}); mesh && mesh->is_object())
    for (const Value::Member& axis : mesh->members())
      if (!(axis.value == Value(1))) axes.push_back(axis.key + " " + axis.value.to_json());
  return axes.empty() ? world->to_json() : world->to_json() + " (" + join(axes) + ")";
}

std::string owner_of(const std::string& name) { return name.substr(0, name.find('/')); }

}  // namespace drivetrain
