// What the reader of conversations does with each key that formats of chats have: the one table of it. Thread: any.
#pragma once

#include <span>
#include <string>

namespace drivetrain::instruction {

enum class KeyPlace { line, message };
enum class KeyUse {
  honoured,  // it is read
  left_out   // it changes what others would learn from the line, and is not read: the start of a run says so
};

// A key under its default name. Any key that the table does not have is not read either, and named, too.
struct LineKey {
  KeyPlace place;
  const char* name;
  KeyUse use;
  const char* meaning;  // of one that is honoured; else what is lost without it
};

std::span<const LineKey> line_keys();
// Null if the table does not have it.
const LineKey* find_line_key(KeyPlace place, const std::string& name);

}  // namespace drivetrain::instruction
