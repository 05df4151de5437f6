#include "problems.h"

#include <sys/stat.h>

#include <drivetrain/toolkit/text.h>

#include "layout.h"
#include "manifest.h"
#include "signed_json.h"

namespace drivetrain::sharded {
namespace {

std::string size_problem(const std::string& path, uint64_t wanted) {
  struct stat found = {};
  if (::stat(path.c_str(), &found) != 0) return path + ": is missing";
  if (static_cast<uint64_t>(found.st_size) == wanted) return "";
  return concat(path, ": has ", found.st_size, " bytes instead of ", wanted);
}

std::vector<StoreProblem> problems_of_tag(const std::string& folder, const std::string& tag) {
  const std::string path = folder + "/" + kManifestName;
  std::vector<StoreProblem> problems;
  try {
    for (const RankFiles& rank : read_manifest(path, read_text(path), tag).ranks)
      for (const std::string& problem : {size_problem(folder + "/" + data_name(rank.identity.rank), rank.data_bytes),
                                         size_problem(folder + "/" + index_name(rank.identity.rank), rank.index_bytes)})
        if (!problem.empty()) problems.push_back({tag, problem});
  } catch (const OtherTag& e) {  // of which the tag itself may be whole
    problems.push_back({tag, first_line(e.what()) + ": a copy under another name, which no run uses", true});
  } catch (const Error& e) {
    if (e.code() != ErrorCode::checkpoint) throw;
    problems.push_back({tag, first_line(e.what())});
  }
  return problems;
}

}  // namespace

std::vector<StoreProblem> problems_in(const Place& place) {
  std::vector<StoreProblem> list;
  std::vector<std::string> without_manifest;
  for (const std::string& tag : place.tags(without_manifest)) {
    const std::string folder = place.find(tag);
    const std::vector<StoreProblem> found = problems_of_tag(folder, tag);
    if (folder != place.find(tag)) continue;  // it was removed or replaced meanwhile
    list.insert(list.end(), found.begin(), found.end());
  }
  for (const std::string& tag : without_manifest)
    list.push_back({tag, concat(place.folder(), "/", tag, "/", kManifestName, ": is missing")});
  for (const auto& [folder, tag] : place.unfinished())
    list.push_back({tag, folder + ": is of a save that was killed, or that is being written now", true});
  return list;
}

}  // namespace drivetrain::sharded
