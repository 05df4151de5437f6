#include "folder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <sstream>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/read_file.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain::deepspeed {
namespace {

namespace fs = std::filesystem;

int64_t rank_of(const std::ssub_match& digits) { return std::stoll(digits.str().substr(0, 9)); }

// "global_step40" -> 40; -1 for other tags.
int64_t step_of(const std::string& tag) {
  std::smatch match;
  static const std::regex form("global_step([0-9]{1,15})");
  return std::regex_match(tag, match, form) ? std::stoll(match[1].str()) : -1;
}

// The first word of the file; "" if there is no such file.
std::string in(const std::string& folder, const std::string& name) { return (fs::path(folder) / name).string(); }

std::string read_latest(const std::string& folder) {
  std::istringstream text(read_file(in(folder, "latest"), 4096).value_or(""));
  std::string tag;
  text >> tag;
  return tag;
}

// Files by rank; a rank that is missing between others leaves an empty name.
std::vector<std::string> by_rank(const std::map<int64_t, std::string>& files) {
  std::vector<std::string> list;
  if (files.empty()) return list;
  const auto last = static_cast<size_t>(files.rbegin()->first);
  if (last >= 1000000) return list;
  list.resize(last + 1);
  for (const auto& [rank, path] : files) list[static_cast<size_t>(rank)] = path;
  return list;
}

}  // namespace

TagFiles list_files(const std::string& folder) {
  static const std::regex model("mp_rank_([0-9]+)_model_states\\.pt"),
      model3("zero_pp_rank_([0-9]+)_mp_rank_([0-9]+)_model_states\\.pt"),
      optimizer("(?:bf16_)?zero_pp_rank_([0-9]+)_mp_rank_([0-9]+)_?optim_states\\.pt"),
      other("(?:layer_[0-9]+.*|expp_rank_.*)_states\\.pt");
  TagFiles files;
  files.folder = folder;
  std::error_code unknown;
  if (fs::is_directory(fs::path(folder) / "zero", unknown)) return files;  // a universal checkpoint
  std::map<int64_t, std::string> models, optimizers;
  std::smatch match;
  for (const std::string& name : names_in(folder, InFolder::files)) {
    const std::string path = in(folder, name);
    if (std::regex_match(name, match, model3)) {
      files.stage3 = true;
      rank_of(match[2]) == 0 ? void(models[rank_of(match[1])] = path) : files.refused.push_back(name);
    } else if (std::regex_match(name, match, optimizer)) {
      rank_of(match[2]) == 0 ? void(optimizers[rank_of(match[1])] = path) : files.refused.push_back(name);
    } else if (std::regex_match(name, match, model)) {
      rank_of(match[1]) == 0 ? void(models[0] = path) : files.refused.push_back(name);
    } else if (std::regex_match(name, other)) {
      files.refused.push_back(name);
    }
  }
  files.model = by_rank(models), files.optimizer = by_rank(optimizers);
  return files;
}

std::vector<std::string> tags_in(const std::string& folder) {
  std::vector<std::string> tags;
  for (const std::string& name : names_in(folder, InFolder::folders))
    if (list_files(in(folder, name)).any()) tags.push_back(name);
  std::stable_sort(tags.begin(), tags.end(),
                   [](const std::string& a, const std::string& b) { return step_of(a) < step_of(b); });
  return tags;
}

std::string find_tag_folder(const std::string& folder, const std::string& tag, std::vector<std::string>& notes) {
  if (tag.empty() && list_files(folder).any()) return folder;
  const std::vector<std::string> tags = tags_in(folder);
  if (tags.empty()) return {};
  const auto has = [&](const std::string& name) { return std::find(tags.begin(), tags.end(), name) != tags.end(); };
  if (!tag.empty()) {
    if (has(tag)) return in(folder, tag);
    throw fail(ErrorCode::config, folder, ": has no tag ", tag, "; there are ", join(tags));
  }
  const std::string latest = read_latest(folder);
  if (latest.empty() && tags.size() > 1)
    throw fail(ErrorCode::config, folder, ": has no file `latest` and several tags: ", join(tags),
               "\n   give the folder of one of them");
  if (!latest.empty() && !has(latest))
    throw fail(ErrorCode::config, folder, ": the file `latest` names ", latest.substr(0, 100),
               ", which is not there; there are ", join(tags), "\n   give the folder of one of them");
  const std::string& chosen = latest.empty() ? tags.front() : latest;
  if (chosen != tags.back())
    notes.push_back(concat(folder, ": `latest` names ", chosen, ", which is read; there is also ", tags.back()));
  return in(folder, chosen);
}

}  // namespace drivetrain::deepspeed
