// One line of a file of JSON lines. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace drivetrain {

// The text under `key` of the object in `line`. What is wrong otherwise, as the end of a sentence; empty if nothing is.
std::string read_json_line(std::string_view line, const std::string& key, std::string& text);

}  // namespace drivetrain
