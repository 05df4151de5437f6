// The texts of a preparation: files of JSON lines, of which every line is a document, and plain texts, of which every
// file is one. They are read front to back in blocks, from any place on. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <drivetrain/value.h>

#include "data_tools/unpacked_file.h"
#include "internal.h"

namespace drivetrain {

struct TextInput {
  std::string path;  // absolute
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
  bool json_lines = false;
  Packing packing = Packing::none;  // then `bytes` are those of the file, and places count those of its text
};

// Number, bytes and a digest of names, sizes and times, for comparing one preparation with the next.
Value inputs_identity(const std::vector<TextInput>& inputs);

// A place between two documents.
struct InputPlace {
  uint64_t file = 0, offset = 0, line = 0;  // line: how many of the file are before it
};

// Whole lines of a file, or a whole text.
struct TextBlock {
  const TextInput* input = nullptr;
  uint64_t first_line = 0;  // lines before it
  std::string bytes;
  InputPlace after;
};

class DRIVETRAIN_INTERNAL TextReader {
 public:
  // The list outlives this.
  TextReader(const std::vector<TextInput>& inputs, InputPlace from) : inputs_(inputs), place_(from) {}
  ~TextReader();
  TextReader(const TextReader&) = delete;
  TextReader& operator=(const TextReader&) = delete;
  // False at the end. Error(io) for a file that cannot be read, or is shorter than when it was listed.
  bool next(TextBlock& block);
  // About how many bytes the next block has; 0 at the end. Fewer than it has for lines that are longer than a block.
  uint64_t next_bytes();

 private:
  bool to_next_text();  // past files that are done; false at the end
  void open_file();
  void close_file();
  bool at_end();                                     // of the file that the place is in
  void read(TextBlock& block, uint64_t bytes);       // adds so many
  void read_lines(TextBlock& block, uint64_t left);  // whole lines, of the bytes left in the file
  bool unpack();                                     // more of a packed file; false at its end
  void take_unpacked(TextBlock& block);              // whole lines, or all

  const std::vector<TextInput>& inputs_;
  InputPlace place_;
  int descriptor_ = -1;
  std::optional<UnpackedFile> unpacked_;
  std::string ahead_;  // of a packed file: what was unpacked and not given
};

}  // namespace drivetrain
