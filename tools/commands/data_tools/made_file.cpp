#include "data_tools/made_file.h"

#include <algorithm>
#include <filesystem>

#include "data_tools/block_file.h"
#include "data_tools/token_file_layout.h"

namespace drivetrain {
namespace {

std::string begin_of_file(const std::string& path, uint64_t most) {
  const OpenFile file(path);
  std::string text(std::min(most, file.size()), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

bool begins_as_index(const std::string& path) {
  std::error_code unknown;
  return std::filesystem::is_regular_file(path, unknown) &&
         begin_of_file(path, kTokenFileMagic.size()) == kTokenFileMagic;
}

// A file of this name may as well be a text of JSON, so its first keys have to be those of save_progress.
bool begins_as_progress(const std::string& path) {
  const std::string text = begin_of_file(path, 256);
  const size_t version = text.find("\"version\""), of = text.find("\"of\""), inputs = text.find("\"inputs\"");
  return text.starts_with("{") && version < of && of < inputs && inputs != std::string::npos;
}

}  // namespace

std::string made_by_preparation(const std::string& path) {
  for (const char* end : {".bin.part", ".idx.part", ".lengths.part", ".progress.json.part"})
    if (path.ends_with(end)) return "a part of an unfinished preparation";
  if (path.ends_with(".progress.json") && begins_as_progress(path)) return "the progress of an unfinished preparation";
  if (begins_as_index(path)) return "the index of token files";
  if (!path.ends_with(".bin")) return "";
  // A preparation that is killed between its two last calls leaves an index without its name.
  const std::string index = idx_path(path.substr(0, path.size() - 4));
  return begins_as_index(index) || begins_as_index(index + ".part") ? "the tokens of " + index : "";
}

}  // namespace drivetrain
