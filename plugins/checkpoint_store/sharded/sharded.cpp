#include "sharded.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <tuple>

#include <drivetrain/toolkit/files/durable.h>
#include <drivetrain/toolkit/files/own_file.h>
#include <drivetrain/toolkit/text.h>

#include "checkpoint.h"
#include "manifest.h"
#include "problems.h"
#include "rank_writer.h"
#include "signed_json.h"

namespace drivetrain::sharded {
namespace {

double now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count()) / 1000;
}

// The nearest folder of `path` and those above it that exists. Error(config) if something else is in the way.
std::string nearest_folder(const std::string& path) {
  for (std::string at = path;; at = parent_folder(at)) {
    struct stat found = {};
    if (::stat(at.c_str(), &found) == 0) {
      if (S_ISDIR(found.st_mode)) return at;
      throw fail(ErrorCode::config, at, ": is no folder, and checkpoints are to be kept in ", path,
                 "\n   choose another with --set output_dir=FOLDER, or set checkpoint_store's \"folder\"");
    }
    if (errno != ENOENT && errno != ENOTDIR)
      throw fail(ErrorCode::config, at, ": cannot be looked at: ", std::strerror(errno),
                 "\n   set checkpoint_store's \"folder\" to another one");
    if (at == parent_folder(at)) return at;
  }
}

FileState state_of(const std::string& path) {
  struct stat found = {};
  if (::lstat(path.c_str(), &found) != 0) return {};
  return {found.st_ino, found.st_size, found.st_mtim.tv_sec, found.st_mtim.tv_nsec};
}

// Whether a later change must have another time: clocks of file systems are coarse.
bool is_settled(const FileState& state) { return state.inode != 0 && now() - static_cast<double>(state.seconds) > 3; }

// A file of an earlier attempt that is none of this save.
void remove_strangers(FileCalls& calls, const std::string& folder, const std::vector<RankFiles>& ranks) {
  std::set<std::string> known;
  for (const RankFiles& rank : ranks) known.insert({data_name(rank.identity.rank), index_name(rank.identity.rank)});
  for (const std::string& name : names_in(folder))
    if (!known.contains(name)) remove_folder_tree(calls, folder + "/" + name);
}

void check_size(const std::string& path, uint64_t wanted) {
  struct stat found = {};
  if (::stat(path.c_str(), &found) != 0 && errno != ENOENT)
    throw file_error(path, "find what a rank has written", errno);
  if (static_cast<uint64_t>(found.st_size) != wanted)
    throw fail(ErrorCode::io, path, ": rank 0 finds ", found.st_size, " bytes, and the rank of this file wrote ",
               wanted,
               "\n   all ranks have to see the same files: check that the folder is shared and that one run uses it");
}

}  // namespace

OptionTable ShardedStore::options() {
  return table<Options>()
      .field("folder", &Options::folder, "folder of the tags, relative to output_dir; empty: output_dir/checkpoints")
      .field("asynchronous", &Options::asynchronous, "write while training goes on")
      .field("on_error", &Options::on_error, "what a save that failed does: end the run, or only be reported")
      .one_of({"stop", "continue"})
      .field("verify", &Options::verify, "compare digests of what is read; off: trust the disk");
}

ShardedStore::ShardedStore(const Options& options, const Services& services, FileCalls& calls, uint64_t chunk_bytes)
    : options_(options), log_(services.log), calls_(calls), chunk_bytes_(chunk_bytes), place_(calls, services.log) {}

void ShardedStore::open_place(const std::string& output_dir, bool owner) {
  const std::filesystem::path base = std::filesystem::path(output_dir).lexically_normal();
  std::string folder = (base / (options_.folder.empty() ? "checkpoints" : options_.folder)).lexically_normal();
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  const std::string exists = nearest_folder(folder), above = parent_folder(base);
  if (owner && ::access(exists.c_str(), W_OK | X_OK) != 0)
    throw fail(ErrorCode::config, exists, ": checkpoints are to be kept in ", folder,
               ", and this user cannot write there: ", std::strerror(errno),
               "\n   change its permissions, or set checkpoint_store's \"folder\" to another one");
  const bool inside = folder.starts_with(above);
  place_.set(folder, inside && above.size() < exists.size() ? above
                     : exists == folder                     ? parent_folder(folder)
                                                            : exists);
  if (!owner) return;
  if (const std::string link = foreign_link(folder); !link.empty()) throw fail(ErrorCode::io, folder, ": ", link);
  if (!folder.starts_with(base.string() + "/")) place_.claim();  // inside of output_dir, the run holds that
  place_.clean_up();
}

std::vector<StoredTag> ShardedStore::tags() const {
  check_open("tags");
  std::vector<StoredTag> list;
  std::vector<std::string> without_manifest;
  for (const std::string& tag : place_.tags(without_manifest))
    if (auto described = describe(tag)) list.push_back(std::move(*described));
  for (const std::string& tag : without_manifest)
    warn_once(concat("the checkpoint ", tag, " cannot be used: ", place_.folder(), "/", tag, "/", kManifestName,
                     ": is missing"));
  std::sort(list.begin(), list.end(), [](const StoredTag& a, const StoredTag& b) {
    return std::tie(b.step, b.saved_at, b.tag) < std::tie(a.step, a.saved_at, a.tag);
  });
  return list;
}

// Manifests of a file that is still the same are read once: `tags` is called after every save.
// No value, and a warning, if the manifest is damaged. A tag that is removed or replaced meanwhile is looked for again.
std::optional<StoredTag> ShardedStore::describe(const std::string& tag) const {
  const std::string folder = place_.find(tag), path = folder + "/" + kManifestName;
  if (folder.empty()) return std::nullopt;
  try {
    const FileState state = state_of(path);
    const std::lock_guard lock(mutex_);
    const auto known = described_.find(tag);
    if (known != described_.end() && known->second.state == state) return known->second.tag;
    const std::string text = read_text(path);
    const Manifest manifest = read_manifest(path, text, tag);
    const Value *const figures = manifest.facts.find("figures"), *const run_id = manifest.facts.find("run_id");
    StoredTag found{tag,
                    manifest.step,
                    manifest.saved_at,
                    manifest.file_bytes() + text.size(),
                    2 * manifest.ranks.size() + 1,
                    figures ? *figures : Value::object(),
                    run_id && run_id->is_string() ? run_id->as_string() : ""};
    if (is_settled(state)) described_[tag] = {state, found};
    return found;
  } catch (const NewerVersion&) {
    throw;
  } catch (const OtherTag& e) {
    warn_once(concat("the checkpoint ", tag, " is not used: ", e.what()));
    return std::nullopt;
  } catch (const Error& e) {
    if (place_.find(tag) != folder) return describe(tag);
    if (e.code() != ErrorCode::checkpoint) throw;
    warn_once(concat("the checkpoint ", tag, " cannot be used: ", first_line(e.what())));
    return std::nullopt;
  }
}

std::shared_ptr<const Checkpoint> ShardedStore::open(const std::string& tag) const {
  check_open("open");
  check_tag(tag);
  const std::string folder = place_.find(tag);
  if (folder.empty()) {
    std::vector<std::string> others;
    for (const StoredTag& other : tags()) others.push_back(other.tag);
    throw fail(ErrorCode::checkpoint, place_.folder(), "/", tag, ": there is no complete checkpoint of that name\n   ",
               others.empty() ? "there is none at all in this folder" : "complete ones, newest first: " + join(others));
  }
  return std::make_shared<ShardedCheckpoint>(calls_, folder, tag, options_.verify);
}

Value ShardedStore::write(Snapshot& snapshot) {
  check_open("write");
  check_tag(snapshot.tag);
  if (snapshot.rank < 0 || snapshot.rank >= snapshot.world_size || snapshot.step < 0)
    throw fail(ErrorCode::internal, "checkpoint_store/sharded: rank ", snapshot.rank, " of ", snapshot.world_size,
               " writes step ", snapshot.step);
  make_folders(calls_, place_.saving(snapshot.tag));
  return write_rank(calls_, place_.saving(snapshot.tag), chunk_bytes_, snapshot).to_value();
}

void ShardedStore::commit(const std::string& tag, int64_t step, const Value& facts, const std::vector<Value>& parts) {
  check_open("commit");
  check_tag(tag);
  if (!facts.is_object()) throw fail(ErrorCode::internal, "checkpoint_store/sharded: the facts are no object");
  const std::string folder = place_.saving(tag);
  Manifest manifest{tag, step, now(), files_of_parts(tag, step, parts), facts};
  for (const RankFiles& rank : manifest.ranks) {
    check_size(folder + "/" + data_name(rank.identity.rank), rank.data_bytes);
    check_size(folder + "/" + index_name(rank.identity.rank), rank.index_bytes);
  }
  remove_strangers(calls_, folder, manifest.ranks);
  const std::string path = folder + "/" + kManifestName, text = manifest_text(manifest);
  read_manifest(path, text, tag);  // facts that cannot be read back are an error now
  write_durable_file(calls_, path, text);
  sync_folder(calls_, folder);
  place_.publish(tag);
}

void ShardedStore::discard(const std::string& tag) noexcept { place_.discard(tag); }

void ShardedStore::remove(const std::string& tag) {
  check_open("remove");
  check_tag(tag);
  place_.remove(tag);
}

std::vector<StoreProblem> ShardedStore::problems() const {
  check_open("problems");
  return problems_in(place_);
}

bool ShardedStore::open_tags(const std::string& folder) {
  const std::string path = std::filesystem::path(folder).lexically_normal();
  place_.set(path.size() > 1 && path.back() == '/' ? path.substr(0, path.size() - 1) : path, parent_folder(path));
  std::vector<std::string> without_manifest;
  return !place_.tags(without_manifest).empty() || !without_manifest.empty() || !place_.unfinished().empty();
}

void ShardedStore::check_open(const char* call) const {
  if (place_.folder().empty())
    throw fail(ErrorCode::internal, "checkpoint_store/sharded: ", call, " was called before open_place");
}

void ShardedStore::warn_once(const std::string& line) const {
  const std::lock_guard lock(mutex_);
  if (warned_.insert(line).second) log_.warning(line);
}

}  // namespace drivetrain::sharded

DRIVETRAIN_PLUGIN(drivetrain::CheckpointStore, "sharded", drivetrain::sharded::ShardedStore)
