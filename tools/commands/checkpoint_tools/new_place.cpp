#include "checkpoint_tools/new_place.h"

#include <filesystem>

#include "base/printable.h"
#include "state/new_file.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

std::string absolute(const std::string& folder) {
  if (folder.empty()) throw fail(ErrorCode::config, "--output: the name of the new folder is empty");
  const fs::path path = fs::absolute(folder).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).string();
}

void check_free(const std::string& folder) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(folder, error))) return;
  if (!fs::is_directory(folder, error))
    throw fail(ErrorCode::config, "--output ", one_line(folder), ": is there and is no folder; name another");
  const fs::directory_iterator inside(folder, error);
  if (error) throw fail(ErrorCode::io, "--output ", one_line(folder), ": cannot be read: ", error.message());
  if (inside != fs::directory_iterator())
    throw fail(ErrorCode::config, "--output ", one_line(folder), ": is not empty, it holds ",
               shown(inside->path().filename().string()), "; nothing is overwritten: name another folder");
}

Value config_for(const Value& config, const std::string& folder, const StoreObject& store, const Registry& registry) {
  if (!config.is_object()) return Value();
  const OptionTable& table = registry.options(CheckpointStore::kKind, store.name);
  Value section = Value::object(), mine = config;
  section.set("type", store.name), section.set("params", table.to_value(table.defaults().get()));
  mine.set(CheckpointStore::kKind, section);
  mine.set("output_dir", folder);
  return mine;
}

}  // namespace

NewPlace::NewPlace(const Registry& registry, const std::string& store_name, const std::string& folder,
                   const Value& config)
    : folder_(absolute(folder)), store_(make_store(registry, store_name, Value(), "")) {
  check_free(folder_);
  fs::path above = folder_;
  while (!fs::exists(above)) above = above.parent_path();
  above_ = above.string();
  config_ = config_for(config, folder_, store_, registry);
  try {
    store_call(store_.id, "open_place", [&] { store_.store->open_place(folder_, true); });
  } catch (const Error& e) {
    throw fail(e.code(), "--output ", one_line(folder), ": ", e.what());
  }
}

NewPlace::~NewPlace() {
  if (committed_) return;
  if (!tag_.empty()) store_.store->discard(tag_);
  remove_empty_folders();
}

void NewPlace::write(Snapshot snapshot) {
  tag_ = snapshot.tag, step_ = snapshot.step;
  parts_.push_back(store_call(store_.id, "write", [&] { return store_.store->write(snapshot); }));
}

void NewPlace::commit(const Value& facts) {
  store_call(store_.id, "commit", [&] { store_.store->commit(tag_, step_, facts, parts_); });
  committed_ = true;
  if (config_.is_null()) return;
  const std::string text = config_.to_json(2) + "\n";
  NewFile file(folder_ + "/resolved.json", text.size());
  file.write_at(0, text.data(), text.size());
  file.commit();
}

// Of the folder, what is in it, and those above it that were not there before. A file keeps its folder.
void NewPlace::remove_empty_folders() noexcept {
  std::error_code error;
  std::vector<fs::path> inside;
  for (fs::recursive_directory_iterator at(folder_, error), end; !error && at != end; at.increment(error))
    if (at->is_directory(error)) inside.push_back(at->path());
  for (auto path = inside.rbegin(); path != inside.rend(); ++path) fs::remove(*path, error);
  for (fs::path path = folder_; path != above_ && path.has_relative_path(); path = path.parent_path())
    fs::remove(path, error);
}

}  // namespace drivetrain
