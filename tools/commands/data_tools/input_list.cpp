#include "data_tools/input_list.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <unordered_set>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/durable.h>
#include <drivetrain/toolkit/text.h>
#include <drivetrain/toolkit/text/packed_file.h>

#include "base/suggest.h"
#include "data_tools/block_file.h"
#include "data_tools/made_file.h"
#include "data_tools/prepare_progress.h"
#include "data_tools/token_file_layout.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

std::string absolute_path(const std::string& path) { return fs::absolute(path).lexically_normal().string(); }

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

struct FoundFiles {
  std::vector<std::string> files;
  bool by_name = false;  // the pattern is the name of one file
};

FoundFiles files_of_pattern(const std::string& pattern) {
  std::vector<std::string> list;
  std::error_code unknown;
  const bool exists = fs::exists(pattern, unknown);
  if (exists) {
    list.push_back(pattern);
  } else {
    glob_t found = {};
    glob(pattern.c_str(), GLOB_BRACE | GLOB_TILDE, nullptr, &found);  // sorted
    for (size_t i = 0; i < found.gl_pathc; ++i) list.emplace_back(found.gl_pathv[i]);
    globfree(&found);
  }
  FoundFiles found;
  found.by_name = exists && !fs::is_directory(pattern, unknown);
  for (const std::string& path : list) {
    if (!fs::is_directory(path, unknown)) {
      found.files.push_back(path);
      continue;
    }
    const std::vector<std::string> inside = files_of_folder(path);
    found.files.insert(found.files.end(), inside.begin(), inside.end());
  }
  if (found.files.empty())
    throw fail(ErrorCode::config, "--input ", pattern,
               ": there is no such file\n   give a file, a folder or a pattern");
  return found;
}

// What this or another preparation makes; empty for texts.
std::string why_no_text(const std::string& path, const std::string& output) {
  const std::string whole = absolute_path(path), prefix = absolute_path(output);
  for (const std::string& own : {bin_path(prefix), idx_path(prefix), progress_path(prefix)})
    if (whole == own) return "a file of --output";
  struct stat facts = {};
  if (stat(path.c_str(), &facts) != 0) throw file_error(path, "look at it", errno);
  if (!S_ISREG(facts.st_mode)) throw fail(ErrorCode::config, "--input ", path, ": is no file");
  return made_by_preparation(path);
}

std::vector<std::string> texts_of_pattern(const std::string& pattern, const std::string& output, Log& log) {
  FoundFiles found = files_of_pattern(pattern);
  std::vector<std::string> texts, left_out;
  for (std::string& path : found.files) {
    const std::string other = why_no_text(path, output);
    if (!other.empty() && found.by_name)
      throw fail(ErrorCode::config, "--input ", path, ": is ", other, " and no text\n",
                 "   give the texts; `drivetrain data show` shows token files");
    (other.empty() ? texts : left_out).push_back(std::move(path));
  }
  if (texts.empty())
    throw fail(ErrorCode::config, "--input ", pattern,
               ": has no texts, only what data prepare makes: ", join(left_out, ", "), "\n   give files of text");
  if (left_out.empty()) return texts;
  const size_t more = left_out.size() - std::min<size_t>(left_out.size(), 8);
  left_out.resize(left_out.size() - more);
  log.info(concat("--input ", pattern, ": left out what data prepare makes: ", join(left_out, ", "),
                  more ? concat(" and ", more, " more") : ""));
  return texts;
}

// 0 if there is none.
char first_byte_of_text(const std::string& path) {
  if (const Packing packing = packing_of(path); packing != Packing::none) {
    std::string text;
    UnpackedFile(path, packing).read(text, BlockWindow::kBytes);
    const size_t at = text.find_first_not_of(" \t\r\n", text.starts_with("\xef\xbb\xbf") ? 3 : 0);
    return at == std::string::npos ? '\0' : text[at];
  }
  const OpenFile file(path);
  BlockWindow window(file);
  const bool marked =
      file.size() >= 3 && std::string_view(reinterpret_cast<const char*>(window.at(0, 3)), 3) == "\xef\xbb\xbf";
  for (uint64_t at = marked ? 3 : 0; at < file.size(); ++at)
    if (const char c = static_cast<char>(*window.at(at, 1));
        std::string_view(" \t\r\n").find(c) == std::string_view::npos)
      return c;
  return 0;
}

bool has_json_lines(const std::string& path, const std::string& ending, TextFormat format) {
  if (format != TextFormat::automatic) return format == TextFormat::json_lines;
  for (const char* one : {".jsonl", ".jsonlines", ".ndjson", ".json"})
    if (ending == one) return true;
  if (first_byte_of_text(path) != '{') return false;
  throw fail(ErrorCode::config, "--input ", path,
             ": begins with {, as JSON does, and its name does not end as that of ",
             "JSON lines: .jsonl, .jsonlines, .ndjson or .json\n",
             "   give --format jsonl if every line is a document, --format text if the file is one");
}

TextInput input_of(const std::string& path, TextFormat format) {
  const Packing packing = packing_of(path);
  const std::string own = packing == Packing::none ? path : fs::path(path).replace_extension("").string();
  const std::string ending = lower_case(fs::path(own).extension().string());
  for (const char* packed : {".bz2", ".xz", ".zip", ".parquet", ".arrow"})
    if (ending == packed)
      throw fail(ErrorCode::config, "--input ", path, ": files of type ", packed, " are not read in this version\n   ",
                 ending == ".parquet" || ending == ".arrow"
                     ? concat("write it as JSON lines with `tools/table_to_jsonl ", path, "` of the source tree")
                     : std::string("unpack it to JSON lines or plain text, or pack it as .gz or .zst"));
  struct stat facts = {};
  if (stat(path.c_str(), &facts) != 0) throw file_error(path, "look at it", errno);
  if (packing == Packing::none) {  // whatever its name is
    const OpenFile file(path);
    std::string begin(std::min<uint64_t>(file.size(), kPackedSignature), '\0');
    file.read(0, begin.data(), begin.size());
    refuse_packed(begin, "--input", path);
  }
  TextInput input;
  input.path = absolute_path(path);
  input.bytes = static_cast<uint64_t>(facts.st_size);
  input.modified_ns = facts.st_mtim.tv_sec * 1'000'000'000 + facts.st_mtim.tv_nsec;
  input.packing = packing;
  input.json_lines = has_json_lines(path, ending, format);
  return input;
}

}  // namespace

std::string text_format_words(TextFormat format) {
  if (format == TextFormat::automatic) return "by the ending";
  return format == TextFormat::json_lines ? "JSON lines" : "whole texts";
}

std::vector<TextInput> list_inputs(const std::vector<std::string>& patterns, TextFormat format,
                                   const std::string& output, Log& log) {
  std::vector<TextInput> inputs;
  std::unordered_set<std::string> seen;
  for (const std::string& pattern : patterns)
    for (const std::string& path : texts_of_pattern(pattern, output, log))
      if (seen.insert(absolute_path(path)).second) inputs.push_back(input_of(path, format));
  return inputs;
}

}  // namespace drivetrain
