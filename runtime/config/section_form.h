// The forms in which a config may write a section beside {type, params} and bare options. The manifest of the plugin
// that claims the section declares them (drivetrain_add_plugin). Values; any thread.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "internal.h"

namespace drivetrain {

struct SectionForm {
  std::vector<std::string> aliases;  // other names of the section
  std::string number;                // the option that a bare number stands for; "": numbers are refused
  Value on{};                        // object: the options that `true` stands for; null: the plugin's defaults
  Value off{};                       // object: option -> value; each of them alone switches the section off; null: none
  bool off_unless_enabled = false;   // `enabled` is false by default, as in many of DeepSpeed's sections
  Value automatic{};                 // object: device -> rank, where "enabled": "auto" is on; null: nowhere
};

// Reads an object with some of the keys `aliases`, `number`, `on`, `off`, `off_unless_enabled` and `auto`. Throws
// Error(config) that says which key has which wrong value.
DRIVETRAIN_INTERNAL SectionForm read_section_form(const Value& value);

// The options that the form names, each once, in the order number, on, off.
std::vector<std::string> options_of_form(const SectionForm& form);

// Adds what `other` declares and `form` does not.
DRIVETRAIN_INTERNAL void merge_section_form(SectionForm& form, const SectionForm& other);

}  // namespace drivetrain
