// Texts as Python has them: of characters, with its blanks and its line ends. Texts are valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace drivetrain::jinja {

bool is_blank(uint32_t character);
// Of the begin and the end that are blanks, or characters of `set` where it is not null.
enum class Side { both, left, right };
std::string_view stripped(std::string_view text, Side side, const std::string* set = nullptr);

std::vector<std::string_view> characters(std::string_view text);
int64_t length_of(std::string_view text);
std::vector<std::string_view> lines_of(std::string_view text);
// `most`: of cuts; below 0: all. An empty separator: at blanks.
std::vector<std::string_view> split_text(std::string_view text, const std::string* separator, int64_t most,
                                         bool from_end);
std::string replaced(const std::string& text, const std::string& old, const std::string& by, int64_t most);

enum class Case { upper, lower, title, capital };
std::string in_case(const std::string& text, Case how);

}  // namespace drivetrain::jinja
