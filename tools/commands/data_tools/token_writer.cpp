#include "data_tools/token_writer.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/durable.h>

#include "data_tools/block_file.h"
#include "data_tools/prepare_progress.h"

namespace drivetrain {
namespace {

constexpr size_t kBuffer = size_t{4} << 20;

std::string bin_part(const std::string& prefix) { return bin_path(prefix) + ".part"; }
std::string idx_part(const std::string& prefix) { return idx_path(prefix) + ".part"; }
std::string lengths_part(const std::string& prefix) { return prefix + ".lengths.part"; }

bool is_there(const std::string& path) {
  std::error_code unknown;
  return std::filesystem::exists(path, unknown);
}

// A preparation was written to its end, and now one of its files is gone.
Error lost_file(const std::string& prefix, const std::string& path) {
  std::string left = progress_path(prefix);
  for (const std::string& one : {bin_path(prefix), idx_path(prefix), bin_part(prefix), idx_part(prefix)})
    if (is_there(one)) left += " " + one;
  return fail(ErrorCode::io, path, ": is not there, although ", progress_path(prefix), " says that it was written\n",
              "   to begin anew remove ", left);
}

}  // namespace

GrowingFile::GrowingFile(const std::string& path, uint64_t bytes) : path_(path), written_(bytes) {
  descriptor_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw file_error(path, "create the file", errno);
  std::string problem;
  const bool alone = flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  const off_t end = lseek(descriptor_, 0, SEEK_END);
  if (!alone)
    problem = ": another preparation is writing it\n   wait for it, or give another --output";
  else if (end < static_cast<off_t>(bytes))
    problem = concat(": has ", end, " bytes; the preparation that was stopped had written ", bytes);
  else if (ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0 || lseek(descriptor_, 0, SEEK_END) < 0)
    problem = ": cannot be cut to its length";
  if (problem.empty()) return;
  close(descriptor_);
  throw fail(ErrorCode::io, path, problem);
}

GrowingFile::~GrowingFile() { close(descriptor_); }

void GrowingFile::append(const void* data, uint64_t bytes) {
  const auto* begin = static_cast<const char*>(data);
  buffer_.insert(buffer_.end(), begin, begin + bytes);
  if (buffer_.size() >= kBuffer) flush();
}

void GrowingFile::flush() {
  for (size_t at = 0; at < buffer_.size();) {
    const ssize_t done = write(descriptor_, buffer_.data() + at, buffer_.size() - at);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) throw file_error(path_, "write the file", done == 0 ? ENOSPC : errno, buffer_.size() - at);
    at += static_cast<size_t>(done);
  }
  written_ += buffer_.size();
  buffer_.clear();
}

void GrowingFile::sync() {
  flush();
  if (fsync(descriptor_) != 0) throw file_error(path_, "sync the file", errno);
}

TokenWriter::TokenWriter(const std::string& prefix, const TokenType& type, uint64_t documents, uint64_t tokens)
    : prefix_(prefix),
      type_(type),
      tokens_file_(bin_part(prefix), tokens * type.bytes),
      lengths_(lengths_part(prefix), documents * sizeof(int32_t)),
      documents_(documents),
      tokens_(tokens) {}

void TokenWriter::add(std::span<const int32_t> document) {
  if (document.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    throw fail(ErrorCode::io, prefix_, ": document ", documents_, " has ", document.size(),
               " tokens; the format counts those of a document with 31 bits");
  const auto length = static_cast<int32_t>(document.size());
  if (&type_ == &kUint16) {
    narrow_.assign(document.begin(), document.end());
    tokens_file_.append(narrow_.data(), narrow_.size() * sizeof(uint16_t));
  } else {
    tokens_file_.append(document.data(), document.size_bytes());
  }
  lengths_.append(&length, sizeof length);
  ++documents_, tokens_ += document.size();
}

void TokenWriter::sync() {
  tokens_file_.sync();
  lengths_.sync();
}

void TokenWriter::write_index() {
  sync();
  GrowingFile idx(idx_part(prefix_), 0);
  const auto put = [&](auto value) { idx.append(&value, sizeof value); };
  idx.append(kTokenFileMagic.data(), kTokenFileMagic.size());
  put(kTokenFileVersion), put(type_.code), put(documents_), put(documents_ + 1);
  const OpenFile lengths(lengths_.path());
  BlockWindow window(lengths);
  const auto for_each_length = [&](const auto& use) {
    for (uint64_t d = 0; d < documents_; ++d) {
      int32_t length = 0;
      std::memcpy(&length, window.at(d * sizeof length, sizeof length), sizeof length);
      use(length);
    }
  };
  for_each_length(put);
  int64_t begin = 0;
  for_each_length([&](int32_t length) { put(begin), begin += int64_t{length} * static_cast<int64_t>(type_.bytes); });
  for (uint64_t d = 0; d <= documents_; ++d) put(static_cast<int64_t>(d));
  idx.sync();
}

void TokenWriter::give_names(const std::string& prefix) {
  FileCalls& calls = system_file_calls();
  const std::pair<std::string, std::string> names[] = {{bin_part(prefix), bin_path(prefix)},
                                                       {idx_part(prefix), idx_path(prefix)}};
  for (const auto& [from, to] : names)
    if (!is_there(from) && !is_there(to)) throw lost_file(prefix, to);
  for (const auto& [from, to] : names)
    if (is_there(from) && calls.rename(from, to) != 0) throw file_error(to, "rename a file to it", errno);
  sync_folder(calls, parent_folder(prefix));
  calls.remove_file(lengths_part(prefix));
}

std::vector<std::string> TokenWriter::unfinished_files(const std::string& prefix) {
  return {bin_part(prefix), idx_part(prefix), lengths_part(prefix)};
}

}  // namespace drivetrain
