// PEFT's ways to name modules. Pure functions.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/value.h>

namespace drivetrain::lora {

// Whether the path of a module is `name` or ends in "." + name.
bool ends_in(const std::string& path, const std::string& name);

// Error(config), with the option's key, for a text that is no regular expression, or one whose matches could take long.
void check_expression(const std::string& text, const char* key);

// Whether `names` names the module: a list of ends or paths, or one regular expression for the whole path. null names
// none. Error(config) for a text that is no regular expression.
bool names_module(const Value& names, const std::string& path);

// The value of the first pattern that the path's end matches: a name end or a regular expression; null if none does.
const Value* first_match(const Value& patterns, const std::string& path);

// The number in the module's path ("layers.3."), or -1.
int64_t layer_number(const std::string& path);

// The two or three of `known` that are written most like `word`.
std::vector<std::string> nearest_names(const std::string& word, const std::vector<std::string>& known);

}  // namespace drivetrain::lora
