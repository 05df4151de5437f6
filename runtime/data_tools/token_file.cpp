#include "data_tools/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/durable.h>

namespace drivetrain {
namespace {

std::string without_extension(const std::string& name) {
  for (const char* extension : {".bin", ".idx"})
    if (name.ends_with(extension)) return name.substr(0, name.size() - 4);
  return name;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat facts = {};
  if (descriptor < 0) throw file_error(path, "open it for reading", errno);
  if (fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    close(descriptor);
    throw fail(ErrorCode::io, path, ": is no file");
  }
  size_ = static_cast<uint64_t>(facts.st_size);
  void* mapped = size_ == 0 ? nullptr : mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
  const int code = errno;
  close(descriptor);
  if (mapped == MAP_FAILED) throw file_error(path, "read it", code);
  data_ = static_cast<const unsigned char*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<unsigned char*>(data_), size_);
}

template <class T>
T TokenFile::number(uint64_t offset) const {
  T value = 0;
  std::memcpy(&value, idx_.data() + offset, sizeof value);
  return value;
}

TokenFile::TokenFile(const std::string& prefix)
    : prefix_(without_extension(prefix)), idx_(idx_path(prefix_)), bin_(bin_path(prefix_)) {
  const std::string path = idx_path(prefix_);
  if (idx_.size() < kTokenFileHeader)
    throw fail(ErrorCode::io, path, ": has ", idx_.size(), " bytes; the header alone has ", kTokenFileHeader);
  if (std::memcmp(idx_.data(), kTokenFileMagic.data(), kTokenFileMagic.size()) != 0)
    throw fail(ErrorCode::io, path, ": does not begin with MMIDIDX: it is no index of token files");
  if (number<uint64_t>(9) != kTokenFileVersion)
    throw fail(ErrorCode::io, path, ": is of version ", number<uint64_t>(9), "; known is ", kTokenFileVersion);
  for (const TokenType& type : kTokenTypes)
    if (type.code == idx_.data()[17]) type_ = &type;
  if (!type_)
    throw fail(ErrorCode::io, path, ": the code of the type is ", int{idx_.data()[17]},
               "; known are 1 (uint8), 2 (int8), 3 (int16), 4 (int32), 5 (int64) and 8 (uint16)");
  sequences_ = number<uint64_t>(18), entries_ = number<uint64_t>(26);
  const uint64_t most = idx_.size();  // each sequence and each entry takes bytes of the file
  const uint64_t wanted = sequences_ > most || entries_ > most ? 0 : kTokenFileHeader + 12 * sequences_ + 8 * entries_;
  if (entries_ == 0 || (wanted != idx_.size() && wanted + sequences_ != idx_.size()))  // a byte each: their mode
    throw fail(ErrorCode::io, path, ": has ", idx_.size(), " bytes, which do not fit ", sequences_, " sequences and ",
               entries_, " begins of documents");
}

int32_t TokenFile::sequence_length(uint64_t sequence) const { return number<int32_t>(kTokenFileHeader + 4 * sequence); }
int64_t TokenFile::sequence_begin(uint64_t sequence) const {
  return number<int64_t>(kTokenFileHeader + 4 * sequences_ + 8 * sequence);
}
int64_t TokenFile::document_begin(uint64_t document) const {
  return number<int64_t>(kTokenFileHeader + 12 * sequences_ + 8 * document);
}

uint64_t TokenFile::document_length(uint64_t document) const {
  uint64_t length = 0;
  const auto end = static_cast<uint64_t>(document_begin(document + 1));
  for (auto s = static_cast<uint64_t>(document_begin(document)); s < end; ++s)
    length += static_cast<uint64_t>(sequence_length(s));
  return length;
}

int64_t TokenFile::token(uint64_t offset) const {
  const auto as = [&](auto value) {
    std::memcpy(&value, bin_.data() + offset, sizeof value);
    return static_cast<int64_t>(value);
  };
  switch (type_->code) {
    case 1:
      return as(uint8_t{});
    case 2:
      return as(int8_t{});
    case 3:
      return as(int16_t{});
    case 4:
      return as(int32_t{});
    case 8:
      return as(uint16_t{});
    default:
      return as(int64_t{});
  }
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

std::vector<std::string> TokenFile::wrong_ids(int64_t vocab_size, size_t most) const {
  std::vector<std::string> list;
  const int64_t end = vocab_size == 0 ? std::numeric_limits<int64_t>::max() : vocab_size;
  for (uint64_t d = 0; d < documents() && list.size() < most; ++d) {
    uint64_t position = 0;
    const auto last = static_cast<uint64_t>(document_begin(d + 1));
    for (auto s = static_cast<uint64_t>(document_begin(d)); s < last; ++s) {
      const auto begin = static_cast<uint64_t>(sequence_begin(s));
      for (int32_t i = 0; i < sequence_length(s); ++i, ++position) {
        const int64_t id = token(begin + static_cast<uint64_t>(i) * type_->bytes);
        if (id >= 0 && id < end) continue;
        if (list.size() < most)
          list.push_back(concat(bin_path(prefix_), ": document ", d, ", position ", position, ": token ", id,
                                id < 0 ? " is negative" : concat(" is not below ", vocab_size)));
      }
    }
  }
  return list;
}

}  // namespace drivetrain
