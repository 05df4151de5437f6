#include "place.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/durable.h>

#include "layout.h"

namespace drivetrain::sharded {
namespace {

// What cannot be looked at is not taken for missing: a checkpoint would be passed over in silence.
bool is_there(const std::string& path) {
  struct stat found = {};
  if (::lstat(path.c_str(), &found) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) throw file_error(path, "look at it", errno);
  return false;
}

bool has_manifest(const std::string& folder) { return is_there(folder + "/" + kManifestName); }

// Of a tag that has lost its manifest: files of ranks and nothing else.
bool is_what_is_left(const std::string& folder) {
  const std::vector<std::string> names = names_in(folder);
  return !names.empty() &&
         std::all_of(names.begin(), names.end(), [](const std::string& name) { return name.starts_with("rank-"); });
}

// Any rank's: a copy that was cut short, or a disk after a power cut, has some of them.
bool has_file_of_a_rank(const std::string& folder) {
  struct stat found = {};
  if (::stat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) return false;
  const std::vector<std::string> names = names_in(folder);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) { return name.starts_with("rank-"); });
}

// "step-1" of ".saving-step-1"; empty for a name without that beginning.
std::string tag_behind(const std::string& name, const std::string& beginning) {
  return name.starts_with(beginning) && is_tag(name.substr(beginning.size())) ? name.substr(beginning.size()) : "";
}

}  // namespace

// A folder that was moved away with its lock may by now be another run's, under the same name.
void Place::check_claim() const {
  struct stat claimed = {}, found = {};
  if (claim_ < 0 || ::fstat(claim_, &claimed) != 0) return;
  const bool there = ::stat(folder_.c_str(), &found) == 0;
  if (there ? claimed.st_dev == found.st_dev && claimed.st_ino == found.st_ino : errno != ENOENT) return;
  throw fail(
      ErrorCode::io, folder_, ": was ", there ? "moved away" : "moved away or removed",
      " while this run was at work\n   what has that name now is not this run's, and nothing is saved or removed ",
      "there; leave the folder of a run in its place");
}

Place::~Place() {
  if (claim_ < 0) return;
  calls_.remove_folder(folder_);  // which fails, as it should, where there is something
  ::close(claim_);
}

void Place::claim() {
  make_folders(calls_, folder_);
  claim_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (claim_ < 0) throw file_error(folder_, "open the folder", errno);
  // A file system that has no such locks does not keep a run from working.
  if (::flock(claim_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(std::exchange(claim_, -1));
  throw fail(ErrorCode::config, folder_, ": another run that is at work keeps its checkpoints there\n   ",
             "wait for its end, or set checkpoint_store's \"folder\" to another one");
}

void Place::set(const std::string& folder, const std::string& top) { folder_ = folder, top_ = top; }

std::string Place::find(const std::string& tag) const {
  for (const std::string& folder : {path(tag), folder_ + "/" + kReplaced + tag})
    if (has_manifest(folder)) return folder;
  return "";
}

std::vector<std::string> Place::tags(std::vector<std::string>& without_manifest) const {
  std::set<std::string> found;
  for (const std::string& name : names_in(folder_)) {
    const std::string replaced = tag_behind(name, kReplaced), tag = replaced.empty() ? name : replaced;
    if (!is_tag(tag)) continue;
    if (has_manifest(folder_ + "/" + name))
      found.insert(tag);
    else if (replaced.empty() && has_file_of_a_rank(path(name)))
      without_manifest.push_back(name);
  }
  return {found.begin(), found.end()};
}

std::vector<std::pair<std::string, std::string>> Place::unfinished() const {
  std::vector<std::pair<std::string, std::string>> found;
  for (const std::string& name : names_in(folder_))
    for (const char* const beginning : {kSaving, kReplaced, kRemoving})
      if (const std::string tag = tag_behind(name, beginning); !tag.empty())
        found.emplace_back(folder_ + "/" + name, tag);
  return found;
}

void Place::clean_up() {
  try {
    remove_left_overs();
  } catch (const Error& e) {
    log_.warning(concat("checkpoint_store/sharded: what a killed save has left could not be removed: ", e.what()));
  }
}

void Place::remove_left_overs() {
  std::vector<std::string> left;
  for (const std::string& name : names_in(folder_)) {
    const std::string replaced = tag_behind(name, kReplaced), at = folder_ + "/" + name;
    if (!replaced.empty() && !has_manifest(path(replaced)) && has_manifest(at)) {
      if (calls_.rename(at, path(replaced)) != 0) throw file_error(at, "rename it to " + path(replaced), errno);
      log_.info(concat("checkpoint_store/sharded: ", replaced, " was being replaced when a run ended, and is kept"));
    } else if (!replaced.empty() || !tag_behind(name, kSaving).empty() || !tag_behind(name, kRemoving).empty()) {
      left.push_back(at);
    }
  }
  if (left.empty()) return;
  // What was renamed may not be on the disk yet, and what is removed may be all that is left there.
  sync_folder(calls_, folder_);
  for (const std::string& at : left) remove_folder_tree(calls_, at);
}

void Place::publish(const std::string& tag) {
  const std::string from = saving(tag), to = path(tag);
  check_claim();
  sync_above();
  if (has_manifest(to)) return replace(tag);
  if (is_there(to) && is_what_is_left(to)) {
    log_.warning(concat("checkpoint_store/sharded: ", to, " had lost its ", kManifestName, " and is replaced"));
    return replace(tag);
  }
  // An empty folder gives way to a rename; anything else is not ours.
  if (is_there(to) && (!names_in(to).empty() || calls_.remove_folder(to) != 0))
    throw fail(ErrorCode::io, to, ": is there and is no checkpoint\n   move it away, or save under another name");
  if (calls_.rename(from, to) != 0) throw file_error(from, "rename it to " + to, errno);
  sync_or(to, {{to, from}}, false);
}

void Place::replace(const std::string& tag) {
  const std::string from = saving(tag), to = path(tag), aside = folder_ + "/" + kReplaced + tag;
  if (calls_.exchange(from, to) == 0) {
    sync_or(to, {{from, to}}, true);
    return drop(from);
  }
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) throw file_error(from, "exchange it with " + to, errno);
  // Two steps, between which the tag is found under its other name.
  remove_folder_tree(calls_, aside);
  if (calls_.rename(to, aside) != 0) throw file_error(to, "rename it to " + aside, errno);
  if (calls_.rename(from, to) != 0) {
    const int code = errno;
    calls_.rename(aside, to);
    throw file_error(from, "rename it to " + to, code);
  }
  sync_or(to, {{to, from}, {aside, to}}, false);
  drop(aside);
}

// Puts the new name on the disk. Where that fails, it must not seem to be there: the renames are taken back.
void Place::sync_or(const std::string& what, const std::vector<std::pair<std::string, std::string>>& undo,
                    bool exchange) {
  try {
    sync_folder(calls_, folder_);
  } catch (const Error&) {
    for (const auto& [from, to] : undo)
      if ((exchange ? calls_.exchange(from, to) : calls_.rename(from, to)) != 0)
        log_.warning(concat("checkpoint_store/sharded: ", what, " could not be taken back after a failed sync"));
    throw;
  }
}

// Once: the names of the folder itself and of those above it that this run has made.
void Place::sync_above() {
  if (synced_above_) return;
  for (std::string at = folder_; at != top_ && at != parent_folder(at);) {
    at = parent_folder(at);
    if (::access(at.c_str(), R_OK) == 0) sync_folder(calls_, at);
  }
  synced_above_ = true;
}

void Place::drop(const std::string& path) noexcept {
  try {
    remove_folder_tree(calls_, path);
  } catch (const std::exception& e) {
    log_.warning(concat("checkpoint_store/sharded: ", e.what(), "\n   the next run removes it"));
  }
}

void Place::discard(const std::string& tag) noexcept {
  try {
    if (!is_tag(tag) || folder_.empty() || !is_there(saving(tag))) return;
    sync_folder(calls_, folder_);  // what lies there may have been exchanged with the tag a moment ago
    remove_folder_tree(calls_, saving(tag));
  } catch (const std::exception& e) {
    log_.warning(concat("checkpoint_store/sharded: ", e.what(), "\n   the next run removes ", saving(tag)));
  }
}

void Place::remove(const std::string& tag) {
  check_claim();
  const std::string at = find(tag), aside = folder_ + "/" + kRemoving + tag;
  if (at.empty()) throw fail(ErrorCode::checkpoint, path(tag), ": there is no such checkpoint to remove");
  remove_folder_tree(calls_, aside);
  if (at == path(tag)) remove_folder_tree(calls_, folder_ + "/" + kReplaced + tag);  // or it would come back
  if (calls_.rename(at, aside) != 0) throw file_error(at, "rename it to " + aside, errno);
  sync_folder(calls_, folder_);
  drop(aside);
}

}  // namespace drivetrain::sharded
