#include "checkpoint_tools/stored_run.h"

#include <algorithm>
#include <filesystem>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "base/suggest.h"
#include "log/log_console.h"
#include "rendezvous/rendezvous.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "resolved.json";

bool is_there(const fs::path& path) {
  std::error_code unknown;
  return fs::exists(path, unknown);
}

std::string default_store(const Registry& registry) {
  for (const Found& found : registry.found())
    if (found.state == Found::usable && found.entry.kind == CheckpointStore::kKind && found.entry.is_default)
      return found.entry.name;
  throw fail(ErrorCode::plugin, "no installed ", CheckpointStore::kKind,
             " is the default one; name one with --store NAME: ", join(registry.names(CheckpointStore::kKind)));
}

// What a run's resolved.json says: the store's name and options. The plugin paths of that file are not followed:
// looking into a folder of somebody else must not run code out of it.
struct NamedStore {
  std::string name, origin;
  Value params;
};
NamedStore named_in(const fs::path& config_file) {
  const std::string hint = "\n   name the store yourself: --store NAME";
  Value config;
  try {
    config = read_json_file(config_file.string());
  } catch (const Error& e) {
    throw fail(e.code(), e.what(), hint);
  }
  const Value* const section = config.find(CheckpointStore::kKind);
  if (!section) return {};
  NamedStore named{"", concat(config_file.string(), ": ", CheckpointStore::kKind), Value()};
  if (section->is_string()) named.name = section->as_string();
  if (const Value* const type = section->find("type"); type && type->is_string()) named.name = type->as_string();
  if (const Value* const params = section->find("params"); params && params->is_object()) named.params = *params;
  if (named.name.empty())
    throw fail(ErrorCode::config, named.origin, " is ", section->to_json(), ", which names no store", hint);
  return named;
}

// Calls of a plugin's checkpoint; says what to do about damage.
class ToolCheckpoint final : public Checkpoint {
 public:
  ToolCheckpoint(std::shared_ptr<const Checkpoint> inner, std::string id, std::string hint)
      : inner_(std::move(inner)), id_(std::move(id)), hint_(std::move(hint)) {}
  const Value& facts() const override { return inner_->facts(); }
  std::vector<StoredTensor> tensors() const override {
    return store_call(id_, "tensors", [&] { return inner_->tensors(); });
  }
  void read(const std::string& name, const StateBox& box, const at::Tensor& into) const override {
    try {
      store_call(id_, "read", [&] { inner_->read(name, box, into); });
    } catch (const Error& e) {
      throw fail(e.code(), e.what(), e.code() == ErrorCode::checkpoint ? hint_ : "");
    }
  }
  std::vector<std::string> verify() const override {
    return store_call(id_, "verify", [&] { return inner_->verify(); });
  }

 private:
  const std::shared_ptr<const Checkpoint> inner_;
  const std::string id_, hint_;
};

std::vector<std::string> names_of(const std::vector<StoredTag>& tags) {
  std::vector<std::string> names;
  for (const StoredTag& tag : tags) names.push_back(tag.tag);
  return names;
}

}  // namespace

std::string verify_hint(const std::string& folder) {
  return concat("\n   what is damaged, and which checkpoint is whole: drivetrain checkpoint verify ", one_line(folder));
}

const Value* fact(const Value& facts, const std::vector<std::string>& path) {
  const Value* at = &facts;
  for (const std::string& key : path)
    if (at) at = at->find(key);
  return at;
}

StoreObject make_store(const Registry& registry, const std::string& name, const Value& params,
                       const std::string& origin) {
  StoreObject object;
  object.name = name.empty() ? default_store(registry) : name;
  object.id = concat(CheckpointStore::kKind, "/", object.name);
  // Its warnings are about what `problems` returns.
  object.log = make_console_log({.level = LogLevel::error});
  object.exchange = make_local_store();
  object.services = std::make_shared<Services>(Services{*object.log, *object.exchange});
  std::shared_ptr<void> options;
  try {
    Problems problems;
    const OptionTable& table = registry.options(CheckpointStore::kKind, object.name);
    options = table.parse(params.is_object() ? params : Value::object(), object.id, origin, problems);
    problems.throw_if_any();
    object.store = registry.create<CheckpointStore>(object.name, options.get(), *object.services);
  } catch (const Error& e) {
    if (origin.empty()) throw;
    throw fail(e.code(), origin, " names the store of these checkpoints: ", e.what(),
               "\n   plugins of your own: --plugin-path DIR; another store: --store NAME");
  }
  return object;
}

StoredRun::StoredRun(const Registry& registry, const std::string& folder, const std::string& store_name)
    : folder_(folder) {
  std::error_code unknown;
  if (!fs::is_directory(folder, unknown))
    throw fail(ErrorCode::config, one_line(folder), ": ",
               fs::exists(folder, unknown) ? "is no folder" : "there is no such folder",
               "\n   give the output_dir of a run, or the folder of its checkpoints");
  find_place(registry, store_name);
  tags_ = store_call(store_.id, "tags", [&] { return store_.store->tags(); });
  problems_ = store_call(store_.id, "problems", [&] { return store_.store->problems(); });
  if (tags_.empty() && problems_.empty()) throw_nothing_here();
}

// The folder of a run, or one that holds tags itself; the latter may lie in a run's folder, whose store it is then.
void StoredRun::find_place(const Registry& registry, const std::string& store_name) {
  const fs::path path = fs::absolute(folder_).lexically_normal();
  const std::string place = path.has_filename() ? path.string() : path.parent_path().string();
  const bool is_run = is_there(fs::path(place) / kConfigFile);
  NamedStore named;
  for (const fs::path& config : {fs::path(place) / kConfigFile, fs::path(place).parent_path() / kConfigFile}) {
    if (!named.name.empty() || !is_there(config)) continue;
    try {
      named = named_in(config);
    } catch (const Error&) {
      if (store_name.empty()) throw;
    }
  }
  if (!store_name.empty() && named.name != store_name) named = {store_name, "", Value()};
  store_ = make_store(registry, named.name, named.params, named.origin);
  CheckpointStore& store = *store_.store;
  if (!is_run && store_call(store_.id, "open_tags", [&] { return store.open_tags(place); })) return;
  store_call(store_.id, "open_place", [&] { store.open_place(place, false); });
}

void StoredRun::throw_nothing_here() const {
  const fs::path path = fs::absolute(folder_).lexically_normal();
  const fs::path tag = path.has_filename() ? path : path.parent_path();
  store_.store->open_tags(tag.parent_path().string());
  const std::vector<std::string> beside = names_of(store_.store->tags());
  const bool is_tag = std::find(beside.begin(), beside.end(), tag.filename().string()) != beside.end();
  if (is_tag)
    throw fail(ErrorCode::config, one_line(folder_),
               ": is one checkpoint; give its folder and its tag apart: ", one_line(tag.parent_path().string()), " ",
               tag.filename().string());
  throw fail(
      ErrorCode::config, one_line(folder_), ": holds no checkpoint of ", store_.id,
      "\n   give the output_dir of a run that saved some (\"checkpoint_policy\"), or the folder of its checkpoints; "
      "another store: --store NAME");
}

std::vector<std::string> StoredRun::damage(const std::string& tag) const {
  std::vector<std::string> texts;
  for (const StoreProblem& problem : problems_)
    if (problem.tag == tag && !problem.left_over) texts.push_back(problem.text);
  return texts;
}

bool StoredRun::is_there_now(const std::string& tag) const {
  const std::vector<StoredTag> now = store_call(store_.id, "tags", [&] { return store_.store->tags(); });
  return std::any_of(now.begin(), now.end(), [&](const StoredTag& one) { return one.tag == tag; });
}

std::vector<std::string> StoredRun::damaged_tags() const {
  std::vector<std::string> names;
  const std::vector<std::string> listed = names_of(tags_);
  for (const StoreProblem& problem : problems_)
    if (!problem.left_over && std::find(listed.begin(), listed.end(), problem.tag) == listed.end())
      names.push_back(problem.tag);
  std::sort(names.rbegin(), names.rend());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

bool StoredRun::knows(const std::string& word) const {
  const auto has_name = [&](const StoredTag& tag) { return tag.tag == word; };
  return word == kNewest || std::any_of(tags_.begin(), tags_.end(), has_name) || !damage(word).empty();
}

const StoredTag& StoredRun::find(const std::string& word) const {
  const bool newest = word.empty() || word == kNewest;
  for (const StoredTag& tag : tags_)
    if (newest || tag.tag == word) return tag;
  const std::vector<std::string> found = damage(word), names = names_of(tags_);
  if (!found.empty())
    throw fail(ErrorCode::checkpoint, "the checkpoint ", word, " cannot be used: ", found.front(),
               verify_hint(folder_));
  if (names.empty())
    throw fail(ErrorCode::checkpoint, one_line(folder_), ": no checkpoint here is complete: ", problems_.front().text,
               verify_hint(folder_));
  throw fail(ErrorCode::config, one_line(folder_), ": there is no checkpoint ", shown(word), suggestion(word, names));
}

std::shared_ptr<const Checkpoint> StoredRun::open(const StoredTag& tag) const {
  try {
    auto opened = store_call(store_.id, "open", [&] { return store_.store->open(tag.tag); });
    return std::make_shared<ToolCheckpoint>(std::move(opened), store_.id, verify_hint(folder_));
  } catch (const Error& e) {
    if (e.code() != ErrorCode::checkpoint) throw;
    throw fail(e.code(), e.what(), verify_hint(folder_));
  }
}

}  // namespace drivetrain
