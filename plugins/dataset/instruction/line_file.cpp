#include "line_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text/json_line.h>
#include <drivetrain/toolkit/text/packed_file.h>

namespace drivetrain::instruction {
namespace {

constexpr int64_t kBlock = 8 << 20, kLineBlock = 8 << 10;

Error unreadable(const std::string& path, const std::string& why) {
  return fail(ErrorCode::io, "dataset/instruction: ", path, " cannot be read: ", why);
}

void strip_end(std::string& line) {
  if (!line.empty() && line.back() == '\r') line.pop_back();
}

}  // namespace

LineFile::LineFile(const std::string& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0 && errno == ENOENT)
    throw fail(ErrorCode::config, "dataset/instruction: ", path,
               " does not exist. Paths are relative to the config file");
  if (descriptor_ < 0) throw unreadable(path, std::strerror(errno));
  struct stat facts {};
  try {
    if (::fstat(descriptor_, &facts) != 0 || !S_ISREG(facts.st_mode)) throw unreadable(path, "it is no regular file");
    size_ = facts.st_size;
    std::string begin;
    read(0, kPackedSignature, begin);
    refuse_packed(begin, "dataset/instruction",
                  path);  // lines are read at any place, which a packed file does not allow
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

LineFile::LineFile(LineFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

LineFile::~LineFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void LineFile::read(int64_t at, int64_t count, std::string& to) const {
  for (int64_t end = std::min(at + count, size_); at < end;) {
    const size_t before = to.size(), wanted = static_cast<size_t>(end - at);
    to.resize(before + wanted);
    const ssize_t got = ::pread(descriptor_, to.data() + before, wanted, at);
    to.resize(before + static_cast<size_t>(std::max<ssize_t>(0, got)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw unreadable(path_, concat("at byte ", at, ": ", std::strerror(errno)));
    if (got == 0)
      throw unreadable(path_, concat("it was cut short while it was in use: it had ", size_,
                                     " bytes, and ends before "
                                     "byte ",
                                     at + 1, " now. Put the whole file back"));
    at += got;
  }
}

void LineFile::Reader::take(std::string text, int64_t begin, std::vector<Line>& lines) {
  ++number;
  strip_end(text);
  if (!is_blank_line(text)) lines.push_back({number, begin, std::move(text)});
}

bool LineFile::Reader::next(std::vector<Line>& lines) {
  lines.clear();
  while (lines.empty() && at < file.size_) {
    std::string block = std::move(rest);
    int64_t begin = at - static_cast<int64_t>(block.size());
    file.read(at, kBlock, block);
    at = begin + static_cast<int64_t>(block.size());
    size_t from = 0;
    for (size_t end; (end = block.find('\n', from)) != std::string::npos; from = end + 1)
      take(block.substr(from, end - from), begin + static_cast<int64_t>(from), lines);
    rest = block.substr(from);
    if (at == file.size_ && !rest.empty()) take(std::exchange(rest, {}), begin + static_cast<int64_t>(from), lines);
  }
  return !lines.empty();
}

int64_t LineFile::number(int64_t begin) const {
  int64_t number = 1;
  std::string block;
  for (int64_t at = 0; at < begin; at += kBlock, block.clear()) {
    read(at, std::min(kBlock, begin - at), block);
    number += std::count(block.begin(), block.end(), '\n');
  }
  return number;
}

std::string LineFile::line(int64_t begin) const {
  std::string text;
  size_t end = std::string::npos;
  for (int64_t count = kLineBlock; end == std::string::npos; count *= 2) {
    const size_t before = text.size();
    read(begin + static_cast<int64_t>(before), count, text);
    if (text.size() == before) break;  // the last line has no end
    end = text.find('\n', before);
  }
  text.resize(std::min(end, text.size()));
  strip_end(text);
  return text;
}

}  // namespace drivetrain::instruction
