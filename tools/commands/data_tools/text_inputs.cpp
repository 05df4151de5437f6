#include "data_tools/text_inputs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/durable.h>

#include "base/trust.h"
#include "data_tools/block_file.h"

namespace drivetrain {
namespace {

constexpr uint64_t kBlock = uint64_t{1} << 19;  // bytes of lines that are encoded by one thread

}  // namespace

Value inputs_identity(const std::vector<TextInput>& inputs) {
  std::string text;
  uint64_t bytes = 0;
  for (const TextInput& input : inputs) {
    text += concat(input.path, "\t", input.bytes, "\t", input.modified_ns, "\n");
    bytes += input.bytes;
  }
  Value identity = Value::object();
  identity.set("files", static_cast<int64_t>(inputs.size()));
  identity.set("bytes", static_cast<int64_t>(bytes));
  identity.set("sha256", sha256(text));
  return identity;
}

TextReader::~TextReader() { close_file(); }

void TextReader::open_file() {
  const TextInput& input = inputs_[place_.file];
  if (input.packing != Packing::none) {
    unpacked_.emplace(input.path, input.packing);
    for (uint64_t left = place_.offset; left > 0; left -= ahead_.size(), ahead_.clear())  // there is no way but through
      if (unpacked_->read(ahead_, left) == 0)
        throw fail(ErrorCode::io, input.path, ": ends before byte ", place_.offset, " of its text, where it goes on");
    return;
  }
  descriptor_ = open(input.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) throw file_error(input.path, "open it for reading", errno);
  posix_fadvise(descriptor_, static_cast<off_t>(place_.offset), 0, POSIX_FADV_SEQUENTIAL);
}

void TextReader::close_file() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
  unpacked_.reset(), ahead_.clear();
}

void TextReader::read(TextBlock& block, uint64_t bytes) {
  const TextInput& input = inputs_[place_.file];
  const size_t before = block.bytes.size();
  block.bytes.resize(before + bytes);
  read_exactly(descriptor_, input.path, place_.offset + before, block.bytes.data() + before, bytes, input.bytes);
}

void TextReader::read_lines(TextBlock& block, uint64_t left) {
  while (block.bytes.size() < left) {  // the last line need not end
    const size_t before = block.bytes.size();
    read(block, std::min(kBlock, left - before));
    if (block.bytes.size() == left) return;
    // Only what is new can end a line: a line of many blocks is searched once, not once a block.
    const size_t end = std::string_view(block.bytes).substr(before).rfind('\n');
    if (end == std::string_view::npos) continue;
    block.bytes.resize(before + end + 1);
    return;
  }
}

bool TextReader::unpack() { return unpacked_->read(ahead_, kBlock) > 0; }

void TextReader::take_unpacked(TextBlock& block) {
  const bool lines = inputs_[place_.file].json_lines;
  while ((!lines || ahead_.size() < kBlock) && unpack()) {
  }
  size_t end = lines ? ahead_.rfind('\n') : std::string::npos;
  while (lines && end == std::string::npos && unpack()) {  // a long line: only what is new can end it
    const size_t before = ahead_.size() - std::min(ahead_.size(), static_cast<size_t>(kBlock));
    const size_t found = std::string_view(ahead_).substr(before).rfind('\n');
    if (found != std::string_view::npos) end = before + found;
  }
  const size_t taken = end == std::string::npos ? ahead_.size() : end + 1;
  block.bytes.assign(ahead_, 0, taken);
  ahead_.erase(0, taken);
}

bool TextReader::at_end() {
  const TextInput& input = inputs_[place_.file];
  if (input.packing == Packing::none) return place_.offset >= input.bytes;
  if (!unpacked_) open_file();
  return ahead_.empty() && !unpack();
}

bool TextReader::to_next_text() {
  while (place_.file < inputs_.size() && at_end()) {
    close_file();
    place_ = {place_.file + 1, 0, 0};
  }
  return place_.file < inputs_.size();
}

uint64_t TextReader::next_bytes() {
  if (!to_next_text()) return 0;
  const TextInput& input = inputs_[place_.file];
  if (input.packing != Packing::none) return std::max<uint64_t>(kBlock, ahead_.size());
  const uint64_t left = input.bytes - place_.offset;
  return input.json_lines ? std::min(kBlock, left) : left;
}

bool TextReader::next(TextBlock& block) {
  if (!to_next_text()) return false;
  if (descriptor_ < 0 && !unpacked_) open_file();
  const TextInput& input = inputs_[place_.file];
  block.input = &input, block.first_line = place_.line;
  block.bytes.clear();
  if (unpacked_)
    take_unpacked(block);
  else if (input.json_lines)
    read_lines(block, input.bytes - place_.offset);
  else
    read(block, input.bytes - place_.offset);
  place_.offset += block.bytes.size();
  place_.line += static_cast<uint64_t>(std::count(block.bytes.begin(), block.bytes.end(), '\n'));
  block.after = place_;
  return true;
}

}  // namespace drivetrain
