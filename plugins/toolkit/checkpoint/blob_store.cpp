#include <drivetrain/toolkit/checkpoint/blob_store.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

#include <drivetrain/error.h>

#include "blob_checkpoint.h"

namespace drivetrain {
namespace blobs {

std::string manifest_of(const std::string& tag) { return concat(tag, "/", kManifest); }
std::string tag_of(const std::string& blob) { return blob.substr(0, blob.find('/')); }

double now_s() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace blobs

Blob::~Blob() = default;
BlobPlace::~BlobPlace() = default;
BlobStore::~BlobStore() = default;

BlobStore::BlobStore(std::string plugin, std::string folder) : plugin_(std::move(plugin)), folder_(std::move(folder)) {
  if (folder_.empty()) throw fail(ErrorCode::config, plugin_, ": folder is empty; wanted the name of a folder");
}

void BlobStore::open_place(const std::string& output_dir, bool owner) {
  path_ = (std::filesystem::path(output_dir) / folder_).string();
  place_ = place_at(path_);
  if (!owner) return;
  std::set<std::string> tags;
  for (const std::string& name : place_->names()) tags.insert(blobs::tag_of(name));
  for (const std::string& tag : tags) remove_unused(tag);
}

bool BlobStore::open_tags(const std::string& folder) {
  path_ = folder;
  place_ = place_at(folder);
  const std::vector<std::string> names = place_->names();
  return std::any_of(names.begin(), names.end(), [](const std::string& name) { return name.find('/') != name.npos; });
}

std::vector<std::string> BlobStore::blobs_of(const std::string& tag) const {
  std::vector<std::string> list;
  for (const std::string& name : place_->names())
    if (name.starts_with(tag + "/")) list.push_back(name);
  return list;
}

// What killed saves have left of a tag. One whose manifest is damaged is left alone: a user may still save it.
void BlobStore::remove_unused(const std::string& tag) {
  std::set<std::string> used;
  if (const auto manifest = place_->open(blobs::manifest_of(tag))) {
    try {
      used = blobs::Manifest::read(*manifest, path_ + "/" + blobs::manifest_of(tag)).names();
    } catch (const Error&) {
      return;
    }
    used.insert(blobs::manifest_of(tag));
  }
  for (const std::string& name : blobs_of(tag))
    if (!used.contains(name)) place_->remove(name);
}

std::vector<StoredTag> BlobStore::tags() const {
  std::vector<StoredTag> list;
  for (const std::string& name : place_->names()) {
    const std::string tag = blobs::tag_of(name);
    if (name != blobs::manifest_of(tag)) continue;
    try {
      const auto manifest = blobs::Manifest::read(*place_->open(name), path_ + "/" + name);
      StoredTag found{tag, manifest.step, manifest.saved_at, manifest.bytes, manifest.blobs + 1, {}, {}};
      if (const Value* figures = manifest.facts.find("figures")) found.figures = *figures;
      if (const Value* run = manifest.facts.find("run_id"); run && run->is_string()) found.run_id = run->as_string();
      list.push_back(std::move(found));
    } catch (const Error&) {
      // It is among `problems`.
    }
  }
  std::sort(list.begin(), list.end(), [](const StoredTag& a, const StoredTag& b) {
    return std::pair(a.step, a.saved_at) > std::pair(b.step, b.saved_at);
  });
  return list;
}

std::shared_ptr<const Checkpoint> BlobStore::open(const std::string& tag) const {
  const std::string where = path_ + "/" + tag;
  const auto manifest = place_->open(blobs::manifest_of(tag));
  if (!manifest) throw fail(ErrorCode::checkpoint, where, ": there is no complete checkpoint of this tag");
  return std::make_shared<blobs::BlobCheckpoint>(
      *place_, blobs::Manifest::read(*manifest, path_ + "/" + blobs::manifest_of(tag)), where);
}

Value BlobStore::write(Snapshot& snapshot) {
  const auto ticks = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string save = concat(snapshot.tag, "/", ticks, ".", ::getpid(), "-", snapshot.rank, "-");
  Value written = Value::array();
  int64_t number = 0;
  for (StateSlice& slice : snapshot.slices) {
    const auto bytes = static_cast<uint64_t>(slice.data.nbytes());
    const std::string name = bytes == 0 ? std::string() : concat(save, number++);  // nothing is kept nowhere
    written.items().push_back(blobs::slice_value(slice, name));
    if (bytes > 0) place_->put(name, slice.data.const_data_ptr(), bytes);
    slice.data.reset();
  }
  return written;
}

void BlobStore::commit(const std::string& tag, int64_t step, const Value& facts, const std::vector<Value>& parts) {
  const std::string text = blobs::Manifest::text(step, blobs::now_s(), facts, parts);
  place_->put(blobs::manifest_of(tag), text.data(), text.size());
  remove_unused(tag);  // of the one that it replaces
}

void BlobStore::discard(const std::string& tag) noexcept {
  try {
    remove_unused(tag);
  } catch (...) {
    // It is removed when the run is started again.
  }
}

// The manifest goes first: without it there is no tag.
void BlobStore::remove(const std::string& tag) {
  place_->remove(blobs::manifest_of(tag));
  for (const std::string& name : blobs_of(tag)) place_->remove(name);
}

std::vector<StoreProblem> BlobStore::problems() const {
  std::vector<StoreProblem> list;
  std::set<std::string> tags;
  for (const std::string& name : place_->names()) tags.insert(blobs::tag_of(name));
  for (const std::string& tag : tags) {
    std::set<std::string> used = {blobs::manifest_of(tag)};
    try {
      const auto manifest = place_->open(blobs::manifest_of(tag));
      if (manifest) {
        const auto read = blobs::Manifest::read(*manifest, path_ + "/" + blobs::manifest_of(tag));
        used.merge(read.names());
        const blobs::BlobCheckpoint whole(*place_, read, path_ + "/" + tag);  // every blob is there, in its size
      }
    } catch (const Error& e) {
      list.push_back({tag, e.what(), false});
      continue;
    }
    uint64_t left = 0;
    for (const std::string& name : blobs_of(tag)) left += used.contains(name) ? 0 : 1;
    if (left > 0) list.push_back({tag, concat(path_, "/", tag, ": ", left, " blobs of a save that did not end"), true});
  }
  return list;
}

}  // namespace drivetrain
