// What a reader of files of other programs does with each key of theirs: a table that the reader itself asks, that its
// README shows and of which a test changes every key. Any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace drivetrain {

enum class KeyUse {
  honoured,   // what is read depends on it
  compared,   // with what is known otherwise; where the two differ, the file is refused or the difference is named
  refused,    // any value but the plain ones asks for what is not done here
  no_effect,  // on what is read
  left_out    // it changes what others would read, is not used here, and is named where it is there
};

struct KeyRow {
  const char* of;     // the part of the format, in the reader's words; "": it has one part
  const char* names;  // the spellings of one key, or keys that share what is said of them: "a|b"
  KeyUse use;
  const char* why;              // in words
  const char* plain = nullptr;  // JSON; honoured: what an absent key means; refused: a list of what asks for nothing
};

const char* word_of(KeyUse use);                               // "no effect"
std::vector<std::string> spellings(const std::string& names);  // "a|b": a and b
// Null if the table does not have it.
const KeyRow* find_key(std::span<const KeyRow> table, const std::string& of, const std::string& name);

}  // namespace drivetrain
