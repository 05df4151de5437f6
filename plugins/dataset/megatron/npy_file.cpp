#include "npy_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>

namespace drivetrain::megatron {
namespace {

constexpr char kNpyMagic[] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};
constexpr int64_t kMostHeader = 4096;

std::string header_of(const char* type, int64_t count, int64_t columns) {
  const std::string shape = columns ? concat("(", count / columns, ", ", columns, ")") : concat("(", count, ",)");
  std::string text = concat("{'descr': '", type, "', 'fortran_order': False, 'shape': ", shape, ", }");
  text.resize((text.size() + 10) / 64 * 64 + 64 - 10, ' ');  // the array begins at a multiple of 64
  text.back() = '\n';
  return text;
}

void write_file(const std::string& path, const std::string& header, const void* values, size_t bytes) {
  const std::string part = concat(path, ".", ::getpid(), ".part");
  errno = 0;
  std::ofstream file(part, std::ios::binary);
  file.write(kNpyMagic, sizeof kNpyMagic).write("\1\0", 2);
  const auto size = static_cast<uint16_t>(header.size());
  file.write(reinterpret_cast<const char*>(&size), 2).write(header.data(), size);
  file.write(static_cast<const char*>(values), static_cast<std::streamsize>(bytes));
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(part, path, error);
  if (file && !error) return;
  const std::string why = error ? error.message() : std::strerror(errno);
  std::filesystem::remove(part, error);
  throw fail(ErrorCode::io, "dataset/megatron: ", path, " cannot be written: ", why,
             "\n   index_cache names another folder, or is left out");
}

}  // namespace

template <class... Parts>
Error NpyFile::wrong(const Parts&... parts) const {
  return fail(ErrorCode::io, "dataset/megatron: ", file_.path(), ": ", parts...,
              "\n   remove the cached index; it is made again");
}

NpyFile::NpyFile(const std::string& path) : file_(path) {
  char head[12] = {};
  if (file_.bytes() < 12) throw wrong("has ", file_.bytes(), " bytes, too few for an array");
  file_.read(0, head, sizeof head);
  if (std::memcmp(head, kNpyMagic, sizeof kNpyMagic) != 0) throw wrong("does not begin as a .npy file");
  const bool wide = head[6] >= 2;  // the length of the header has four bytes, not two
  uint32_t length = 0;
  std::memcpy(&length, head + 8, wide ? 4 : 2);
  begin_ = (wide ? 12 : 10) + int64_t{length};
  if (length > kMostHeader || begin_ > file_.bytes()) throw wrong("has a header of ", length, " bytes");
  std::string header(length, '\0');
  file_.read(begin_ - length, header.data(), length);
  parse(header);
  if (count_ * size_ != file_.bytes() - begin_)
    throw wrong("has ", file_.bytes() - begin_, " bytes of values; ", count_, " of ", size_, " bytes are wanted");
}

void NpyFile::parse(const std::string& header) {
  std::smatch type, order, shape;
  if (!std::regex_search(header, type, std::regex("'descr': *'<([iu])([248])'")) ||
      !std::regex_search(header, order, std::regex("'fortran_order': *False")) ||
      !std::regex_search(header, shape, std::regex("'shape': *\\(([0-9, ]*)\\)")))
    throw wrong("is no array of integers in C order: ", header.substr(0, 200));
  is_signed_ = type[1] == "i", size_ = type[2].str()[0] - '0';
  if (!is_signed_ && size_ != 4) throw wrong("has the type u", size_);
  std::string numbers = shape[1];
  for (char& c : numbers)
    if (c == ',') c = ' ';
  std::istringstream list(numbers);
  for (int64_t n; list >> n;) {
    if (n < 0 || n > file_.bytes()) throw wrong("has ", n, " rows or columns");
    shape_.push_back(n);
    if (__builtin_mul_overflow(count_, n, &count_)) throw wrong("has a shape that overflows");
  }
  if (count_ > file_.bytes()) throw wrong("has the shape (", shape[1].str(), ")");
}

int64_t NpyFile::at(int64_t i) const {
  if (i < 0 || i >= count_) throw wrong("element ", i, " of ", count_, " was asked for");
  int64_t value = 0;
  file_.read(begin_ + i * size_, &value, size_);
  if (size_ == 8 || !is_signed_) return value;
  return size_ == 4 ? int64_t{static_cast<int32_t>(value)} : int64_t{static_cast<int16_t>(value)};
}

int64_t IntArray::count() const {
  return file_ ? file_->count() : static_cast<int64_t>(narrow_.size() + unsigned_.size() + wide_.size());
}

int64_t IntArray::at(int64_t i) const {
  if (file_) return file_->at(i);
  const auto at = static_cast<size_t>(i);
  return !narrow_.empty() ? int64_t{narrow_[at]} : !unsigned_.empty() ? int64_t{unsigned_[at]} : wide_[at];
}

void IntArray::write(const std::string& path, int64_t columns) const {
  if (!narrow_.empty()) return write_file(path, header_of("<i4", count(), columns), narrow_.data(), 4 * narrow_.size());
  if (!unsigned_.empty())
    return write_file(path, header_of("<u4", count(), columns), unsigned_.data(), 4 * unsigned_.size());
  write_file(path, header_of("<i8", count(), columns), wide_.data(), 8 * wide_.size());
}

}  // namespace drivetrain::megatron
