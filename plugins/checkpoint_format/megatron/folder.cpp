#include "folder.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <regex>
#include <sstream>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/read_file.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain::megatron {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRankFile = "model_optim_rng.pt";
constexpr const char* kTracker = "latest_checkpointed_iteration.txt";

// A small text; "" if there is no such file.
std::string text_of(const fs::path& path) {
  constexpr uint64_t kMost = 1 << 20;
  try {
    return read_file(path, kMost).value_or("");
  } catch (const Error& e) {
    if (e.code() != ErrorCode::checkpoint) throw;
    return {};
  }
}

std::string form_of(const fs::path& folder) {
  std::error_code unknown;
  if (fs::exists(folder / "metadata.json", unknown)) {
    if (fs::exists(folder / ".metadata", unknown)) return "torch_dist";
    if (text_of(folder / "metadata.json").find("\"zarr\"") != std::string::npos) return "zarr";
  }
  for (const std::string& name : names_in(folder, InFolder::folders))
    if (name.starts_with("mp_rank_") && fs::exists(folder / name / kRankFile, unknown)) return "torch";
  return {};
}

std::vector<std::string> tags_in(const std::string& folder) {
  std::vector<std::string> tags;
  for (const std::string& name : names_in(folder, InFolder::folders))
    if ((name.starts_with("iter_") || name == "release") && !form_of(fs::path(folder) / name).empty())
      tags.push_back(name);
  return tags;
}

// The tag that the tracker file names; "" if there is none.
std::string tracked(const std::string& folder) {
  std::string text;
  std::istringstream(text_of(fs::path(folder) / kTracker)) >> text;
  if (text.empty() || text == "release") return text;
  const bool digits = text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits) return text.substr(0, 100);
  char tag[32];
  std::snprintf(tag, sizeof(tag), "iter_%07ld", std::stol(text));
  return tag;
}

}  // namespace

std::string form_below(const std::string& folder) {
  if (const std::string form = form_of(folder); !form.empty()) return form;
  const std::vector<std::string> tags = tags_in(folder);
  return tags.empty() ? "" : form_of(fs::path(folder) / tags.back());
}

Place find_place(const std::string& folder, const std::string& tag) {
  if (const std::string form = form_of(folder); !form.empty() && tag.empty()) return {folder, form, {}};
  const std::vector<std::string> tags = tags_in(folder);
  const auto has = [&](const std::string& name) { return std::find(tags.begin(), tags.end(), name) != tags.end(); };
  const std::string latest = tracked(folder);
  if (!tag.empty() && !has(tag))
    throw fail(ErrorCode::config, folder, ": has no tag ", tag, "; there are ", join(tags));
  if (tag.empty() && latest.empty() && tags.size() > 1)
    throw fail(ErrorCode::config, folder, ": has no ", kTracker, " and several tags: ", join(tags),
               "\n   give the folder of one of them");
  if (tag.empty() && !latest.empty() && !has(latest))
    throw fail(ErrorCode::config, folder, ": ", kTracker, " names ", latest, ", which is not there; there are ",
               join(tags), "\n   give the folder of one of them");
  const std::string chosen = !tag.empty() ? tag : latest.empty() ? tags.front() : latest;
  Place place{(fs::path(folder) / chosen).string(), form_of(fs::path(folder) / chosen), {}};
  if (tag.empty() && chosen != tags.back())
    place.notes.push_back(
        concat(folder, ": ", kTracker, " names ", chosen, ", which is read; there is also ", tags.back()));
  return place;
}

std::vector<std::vector<std::string>> rank_files(const std::string& folder) {
  static const std::regex plain("mp_rank_([0-9]{2})(?:_([0-9]{3}))?");
  std::map<std::pair<size_t, size_t>, std::string> files;
  size_t tensor = 0, pipeline = 0;
  for (const std::string& name : names_in(folder, InFolder::folders)) {
    if (!name.starts_with("mp_rank_")) continue;
    std::smatch match;
    if (!std::regex_match(name, match, plain))
      throw fail(ErrorCode::checkpoint, folder, ": ", name,
                 " is of expert parallelism or of an older layout, which is ",
                 "not read\n   read are mp_rank_TT and mp_rank_TT_PPP, of a tensor rank and a pipeline stage");
    const size_t t = std::stoul(match[1]), p = match[2].matched ? std::stoul(match[2]) : 0;
    const std::string path = (fs::path(folder) / name / kRankFile).string();
    if (!files.emplace(std::pair(t, p), path).second)
      throw fail(ErrorCode::checkpoint, folder, ": ", name, " is there with and without a pipeline stage\n   keep the ",
                 "folders of one checkpoint");
    tensor = std::max(tensor, t + 1), pipeline = std::max(pipeline, p + 1);
  }
  std::vector<std::vector<std::string>> list(tensor, std::vector<std::string>(pipeline));
  for (size_t t = 0; t < tensor; ++t)
    for (size_t p = 0; p < pipeline; ++p) {
      const auto found = files.find({t, p});
      std::error_code unknown;
      if (found == files.end() || !fs::exists(found->second, unknown))
        throw fail(ErrorCode::checkpoint, folder, ": ", kRankFile, " of tensor rank ", t, ", pipeline stage ", p,
                   " is missing; there are files of ", tensor, " x ", pipeline,
                   " ranks\n   bring the files of all ranks into this folder");
      list[t][p] = found->second;
    }
  return list;
}

}  // namespace drivetrain::megatron
