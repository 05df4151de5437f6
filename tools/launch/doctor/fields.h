// Members of what a host has answered; what is not there, or of another kind, counts as nothing.
#pragma once

#include <string>

#include <drivetrain/value.h>

namespace drivetrain::program {

inline std::string text_field(const Value& object, const char* key) {
  const Value* const value = object.find(key);
  return value && value->is_string() ? value->as_string() : "";
}

inline double number_field(const Value& object, const char* key) {
  const Value* const value = object.find(key);
  return value && value->is_number() ? value->as_double() : 0;
}

}  // namespace drivetrain::program
