// One line of a file of JSON lines, as Python's json module reads it. A line may hold anything beside the keys that are
// in use, and what is not used is no error. So NaN and Infinity are numbers; a number that is too large for its type is
// the nearest double; a key may stand twice in an object, which then has two members; half of a surrogate pair is bytes
// that are no UTF-8, and the text then has its column (Value::where); a byte-order mark in front of the line is passed
// over. Whoever uses a value asks for it by the functions below, which refuse what has no one meaning. Any thread.
#pragma once

#include <string>
#include <string_view>

#include <drivetrain/value.h>

namespace drivetrain {

// Whether a line holds nothing: blanks at most, behind a byte-order mark or none. Such lines are passed over.
bool is_blank_line(std::string_view line);

// Error(io): "column 12: not valid JSON: ...".
Value parse_json_line(std::string_view line);

// The member of that name; null if there is none or this is no object. Error(io) if it is there twice. `of` is for the
// message: "the line", "messages[2]".
const Value* used_member(const Value& object, const std::string& key, const std::string& of);
// The member that a path of keys leads to, "meta.text"; a key of that whole name comes first.
const Value* used_member_at(const Value& object, const std::string& path, const std::string& of);
// A text that is one. Error(io) for half of a surrogate pair in it. `key` and `of` are for the message.
const std::string& used_text(const Value& text, const std::string& key, const std::string& of);

}  // namespace drivetrain
