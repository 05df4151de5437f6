#include "data_tools/token_file.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

std::string without_extension(const std::string& name) {
  for (const char* extension : {".bin", ".idx"})
    if (name.ends_with(extension)) return name.substr(0, name.size() - 4);
  return name;
}

template <class T>
T number_at(const unsigned char* bytes) {
  T value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Calls `use` with a number of the type.
template <class Use>
auto with_type(const TokenType& type, const Use& use) {
  switch (type.code) {
    case 1:
      return use(uint8_t{});
    case 2:
      return use(int8_t{});
    case 3:
      return use(int16_t{});
    case 4:
      return use(int32_t{});
    case 8:
      return use(uint16_t{});
    default:
      return use(int64_t{});
  }
}

// The largest of these ids, the negative ones being the largest of all.
template <class T>
uint64_t largest_id(const unsigned char* bytes, uint64_t count) {
  uint64_t largest = 0;
  for (uint64_t i = 0; i < count; ++i)
    largest = std::max(largest, static_cast<uint64_t>(int64_t{number_at<T>(bytes + i * sizeof(T))}));
  return largest;
}

}  // namespace

TokenFile::TokenFile(const std::string& prefix)
    : prefix_(without_extension(prefix)), idx_(idx_path(prefix_)), bin_(bin_path(prefix_)) {
  read_header();
}

void TokenFile::read_header() {
  const std::string& path = idx_.path();
  if (idx_.size() < kTokenFileHeader)
    throw fail(ErrorCode::io, path, ": has ", idx_.size(), " bytes; the header alone has ", kTokenFileHeader);
  unsigned char header[kTokenFileHeader];
  idx_.read(0, header, sizeof header);
  if (std::memcmp(header, kTokenFileMagic.data(), kTokenFileMagic.size()) != 0)
    throw fail(ErrorCode::io, path, ": does not begin with MMIDIDX: it is no index of token files");
  if (const auto version = number_at<uint64_t>(header + 9); version != kTokenFileVersion)
    throw fail(ErrorCode::io, path, ": is of version ", version, "; known is ", kTokenFileVersion);
  for (const TokenType& type : kTokenTypes)
    if (type.code == header[17]) type_ = &type;
  if (!type_)
    throw fail(ErrorCode::io, path, ": the code of the type is ", int{header[17]},
               "; known are 1 (uint8), 2 (int8), 3 (int16), 4 (int32), 5 (int64) and 8 (uint16)");
  sequences_ = number_at<uint64_t>(header + 18), entries_ = number_at<uint64_t>(header + 26);
  const uint64_t most = idx_.size();  // each sequence and each entry takes bytes of the file
  const uint64_t wanted = sequences_ > most || entries_ > most ? 0 : kTokenFileHeader + 12 * sequences_ + 8 * entries_;
  if (entries_ == 0 || (wanted != idx_.size() && wanted + sequences_ != idx_.size()))  // a byte each: their mode
    throw fail(ErrorCode::io, path, ": has ", idx_.size(), " bytes, which do not fit ", sequences_, " sequences and ",
               entries_, " begins of documents");
}

int32_t TokenFile::sequence_length(uint64_t sequence) const {
  return number_at<int32_t>(lengths_.at(kTokenFileHeader + 4 * sequence, sizeof(int32_t)));
}
int64_t TokenFile::sequence_begin(uint64_t sequence) const {
  return number_at<int64_t>(begins_.at(kTokenFileHeader + 4 * sequences_ + 8 * sequence, sizeof(int64_t)));
}
int64_t TokenFile::document_begin(uint64_t document) const {
  return number_at<int64_t>(documents_.at(kTokenFileHeader + 12 * sequences_ + 8 * document, sizeof(int64_t)));
}

uint64_t TokenFile::document_length(uint64_t document) const {
  uint64_t length = 0;
  const auto end = static_cast<uint64_t>(document_begin(document + 1));
  for (auto s = static_cast<uint64_t>(document_begin(document)); s < end; ++s)
    length += static_cast<uint64_t>(sequence_length(s));
  return length;
}

int64_t TokenFile::token(uint64_t offset) const {
  return with_type(
      *type_, [&](auto of_type) { return int64_t{number_at<decltype(of_type)>(tokens_.at(offset, sizeof of_type))}; });
}

std::vector<int64_t> TokenFile::document(uint64_t index, uint64_t most) const {
  std::vector<int64_t> ids;
  const auto end = static_cast<uint64_t>(document_begin(index + 1));
  for (auto s = static_cast<uint64_t>(document_begin(index)); s < end && ids.size() < most; ++s)
    for (int32_t i = 0; i < sequence_length(s) && ids.size() < most; ++i)
      ids.push_back(token(static_cast<uint64_t>(sequence_begin(s)) + static_cast<uint64_t>(i) * type_->bytes));
  return ids;
}

std::vector<std::string> TokenFile::problems(size_t most) const {
  std::vector<std::string> list;
  const std::string idx = idx_path(prefix_), bin = bin_path(prefix_);
  const auto add = [&](const auto&... words) {
    if (list.size() < most) list.push_back(concat(words...));
  };
  uint64_t at = 0;
  for (uint64_t s = 0; s < sequences_ && list.size() < most; ++s) {
    const int32_t length = sequence_length(s);
    const int64_t begin = sequence_begin(s);
    if (length < 0) add(idx, ": sequence ", s, " has ", length, " tokens");
    if (begin < 0 || begin % static_cast<int64_t>(type_->bytes) != 0)
      add(idx, ": sequence ", s, " begins at byte ", begin, ", where no token of ", type_->bytes, " bytes begins");
    else if (static_cast<uint64_t>(begin) != at)
      add(idx, ": sequence ", s, " begins at byte ", begin, "; the one before ends at byte ", at);
    const uint64_t bytes = static_cast<uint64_t>(std::max(length, 0)) * type_->bytes;
    if (begin >= 0 &&
        (static_cast<uint64_t>(begin) > bin_.size() || bytes > bin_.size() - static_cast<uint64_t>(begin)))
      add(bin, ": has ", bin_.size(), " bytes; sequence ", s, " has ", bytes, " from byte ", begin, " on");
    at = static_cast<uint64_t>(std::max<int64_t>(begin, 0)) + bytes;
  }
  if (list.empty() && at != bin_.size())
    add(bin, ": has ", bin_.size(), " bytes; the sequences of ", idx, " end at byte ", at);
  int64_t before = 0;
  for (uint64_t d = 0; d < entries_ && list.size() < most; ++d) {
    const int64_t begin = document_begin(d);
    if (d == 0 && begin != 0) add(idx, ": document 0 begins with sequence ", begin, "; wanted 0");
    if (begin < before) add(idx, ": document ", d, " begins with sequence ", begin, ", the one before with ", before);
    if (begin > static_cast<int64_t>(sequences_))
      add(idx, ": document ", d, " begins with sequence ", begin, "; there are ", sequences_);
    before = begin;
  }
  if (list.empty() && before != static_cast<int64_t>(sequences_))
    add(idx, ": the documents end with sequence ", before, "; there are ", sequences_);
  return list;
}

void TokenFile::add_wrong_ids(uint64_t offset, uint64_t count, uint64_t end, uint64_t document, uint64_t position,
                              std::vector<std::string>& list, size_t most) const {
  const unsigned char* bytes = tokens_.at(offset, count * type_->bytes);
  const auto largest = [&](auto of_type) { return largest_id<decltype(of_type)>(bytes, count); };
  if (with_type(*type_, largest) < end) return;
  for (uint64_t i = 0; i < count && list.size() < most; ++i)
    if (const int64_t id = token(offset + i * type_->bytes); static_cast<uint64_t>(id) >= end)
      list.push_back(concat(bin_.path(), ": document ", document, ", position ", position + i, ": token ", id,
                            id < 0 ? " is negative" : concat(" is not below ", end)));
}

std::vector<std::string> TokenFile::wrong_ids(int64_t vocab_size, size_t most) const {
  constexpr uint64_t kRun = uint64_t{1} << 14;  // tokens that are looked at together; little against a window
  std::vector<std::string> list;
  const auto end = static_cast<uint64_t>(vocab_size == 0 ? std::numeric_limits<int64_t>::max() : vocab_size);
  for (uint64_t d = 0; d < documents() && list.size() < most; ++d) {
    uint64_t position = 0;
    const auto last = static_cast<uint64_t>(document_begin(d + 1));
    for (auto s = static_cast<uint64_t>(document_begin(d)); s < last; ++s) {
      const auto begin = static_cast<uint64_t>(sequence_begin(s)), length = static_cast<uint64_t>(sequence_length(s));
      for (uint64_t i = 0; i < length; i += kRun)
        add_wrong_ids(begin + i * type_->bytes, std::min(kRun, length - i), end, d, position + i, list, most);
      position += length;
    }
  }
  return list;
}

}  // namespace drivetrain
