#include "data_tools/text_inputs.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <unordered_set>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/durable.h>

#include "plugin/trust.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBlock = uint64_t{1} << 19;  // bytes of lines that are encoded by one thread

std::vector<std::string> files_of_folder(const std::string& folder) {
  std::vector<std::string> list;
  try {
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) list.push_back(entry.path().string());
  } catch (const fs::filesystem_error& e) {
    throw file_error(folder, "list the folder", e.code().value());
  }
  std::sort(list.begin(), list.end());
  return list;
}

std::vector<std::string> files_of_pattern(const std::string& pattern) {
  std::vector<std::string> list;
  std::error_code unknown;
  if (fs::exists(pattern, unknown)) {
    list.push_back(pattern);
  } else {
    glob_t found = {};
    glob(pattern.c_str(), GLOB_BRACE | GLOB_TILDE, nullptr, &found);  // sorted
    for (size_t i = 0; i < found.gl_pathc; ++i) list.emplace_back(found.gl_pathv[i]);
    globfree(&found);
  }
  std::vector<std::string> files;
  for (const std::string& path : list) {
    if (!fs::is_directory(path, unknown)) {
      files.push_back(path);
      continue;
    }
    const std::vector<std::string> inside = files_of_folder(path);
    files.insert(files.end(), inside.begin(), inside.end());
  }
  if (files.empty())
    throw fail(ErrorCode::config, "--input ", pattern,
               ": there is no such file\n   give a file, a folder or a pattern");
  return files;
}

TextInput input_of(const std::string& path) {
  const std::string ending = fs::path(path).extension().string();
  for (const char* packed : {".gz", ".zst", ".bz2", ".xz", ".zip", ".parquet", ".arrow"})
    if (ending == packed)
      throw fail(ErrorCode::config, "--input ", path, ": files of type ", packed, " are not read in this version\n",
                 "   unpack it to JSON lines or plain text first");
  struct stat facts = {};
  if (stat(path.c_str(), &facts) != 0) throw file_error(path, "look at it", errno);
  if (!S_ISREG(facts.st_mode)) throw fail(ErrorCode::config, "--input ", path, ": is no file");
  TextInput input;
  input.path = fs::absolute(path).lexically_normal().string();
  input.bytes = static_cast<uint64_t>(facts.st_size);
  input.modified_ns = facts.st_mtim.tv_sec * 1'000'000'000 + facts.st_mtim.tv_nsec;
  input.json_lines = ending == ".jsonl" || ending == ".ndjson" || ending == ".json";
  return input;
}

}  // namespace

std::vector<TextInput> list_inputs(const std::vector<std::string>& patterns) {
  std::vector<TextInput> inputs;
  std::unordered_set<std::string> seen;
  for (const std::string& pattern : patterns)
    for (const std::string& path : files_of_pattern(pattern))
      if (TextInput input = input_of(path); seen.insert(input.path).second) inputs.push_back(std::move(input));
  return inputs;
}

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
  descriptor_ = open(input.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) throw file_error(input.path, "open it for reading", errno);
  posix_fadvise(descriptor_, static_cast<off_t>(place_.offset), 0, POSIX_FADV_SEQUENTIAL);
}

void TextReader::close_file() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

void TextReader::read(TextBlock& block, uint64_t bytes) {
  const TextInput& input = inputs_[place_.file];
  const size_t before = block.bytes.size();
  block.bytes.resize(before + bytes);
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t offset = place_.offset + before + done;
    const ssize_t got =
        pread(descriptor_, block.bytes.data() + before + done, bytes - done, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw file_error(input.path, concat("read it at byte ", offset), errno);
    if (got == 0)
      throw fail(ErrorCode::io, input.path, ": ends at byte ", offset, "; it had ", input.bytes,
                 " bytes when the preparation began");
    done += static_cast<uint64_t>(got);
  }
}

bool TextReader::next(TextBlock& block) {
  while (place_.file < inputs_.size() && place_.offset >= inputs_[place_.file].bytes) {
    close_file();
    place_ = {place_.file + 1, 0, 0};
  }
  if (place_.file == inputs_.size()) return false;
  if (descriptor_ < 0) open_file();
  const TextInput& input = inputs_[place_.file];
  block.input = &input, block.first_line = place_.line;
  block.bytes.clear();
  const uint64_t left = input.bytes - place_.offset;
  if (!input.json_lines) {
    read(block, left);
  } else {
    for (size_t end = std::string::npos; end == std::string::npos;) {
      read(block, std::min(kBlock, left - block.bytes.size()));
      if (block.bytes.size() == left) break;  // the last line need not end
      end = block.bytes.rfind('\n');
      if (end != std::string::npos) block.bytes.resize(end + 1);
    }
  }
  place_.offset += block.bytes.size();
  place_.line += static_cast<uint64_t>(std::count(block.bytes.begin(), block.bytes.end(), '\n'));
  block.after = place_;
  return true;
}

}  // namespace drivetrain
