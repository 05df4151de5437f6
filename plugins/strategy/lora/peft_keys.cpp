#include "peft_keys.h"

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain::lora {

bool says_nothing(const Value& v) {
  return v.is_null() || v == Value(false) || (v.is_array() && v.items().empty()) ||
         (v.is_object() && v.members().empty()) || (v.is_string() && v.as_string().empty());
}

std::string peft_problem(const PeftKey& key, const Value& value) {
  if (!key.why || says_nothing(value)) return "";
  if (key.wanted && value == Value(key.wanted)) return "";
  const std::string wanted = key.wanted ? concat("\"", key.wanted, "\"") : std::string("null or false");
  return concat(value.to_json(), " ", key.why, "; wanted ", wanted);
}

const PeftKey* find_peft_key(const std::string& key) {
  const auto found =
      std::find_if(std::begin(kPeftKeys), std::end(kPeftKeys), [&](const PeftKey& one) { return key == one.key; });
  return found == std::end(kPeftKeys) ? nullptr : found;
}

std::string help_of(const PeftKey& key) {
  if (!key.why) return "PEFT's: changes nothing here";
  return concat("PEFT's: ", key.wanted ? concat("\"", key.wanted, "\"") : std::string("null or false"),
                "; anything else ", key.why);
}

}  // namespace drivetrain::lora
