#include "config_tools/deepspeed_keys.h"

#include <drivetrain/value.h>

namespace drivetrain {
namespace {

const char kDeepSpeedKeysText[] = {
#include "deepspeed_keys.inc"
};

}  // namespace

const std::map<std::string, std::string>& deepspeed_keys() {
  static const auto* const keys = [] {
    auto* all = new std::map<std::string, std::string>;
    const Value file = parse_json(kDeepSpeedKeysText, "deepspeed_keys.json");
    for (const Value::Member& m : file.members()) (*all)[m.key] = m.value.as_string();
    return all;
  }();
  return *keys;
}

}  // namespace drivetrain
