// What the reader of conversations does with each key that formats of chats have: the one table of it. Thread: any.
#pragma once

#include <span>

#include <drivetrain/toolkit/files/key_table.h>

namespace drivetrain::instruction {

// Parts of the table: keys of the object of a line, and of a message.
inline constexpr const char *kLine = "line", *kMessage = "message";

// Keys under their default names; of one that is left out, what is lost without it. Any key that the table does not
// have is not read either, and named, too.
std::span<const KeyRow> line_keys();

}  // namespace drivetrain::instruction
