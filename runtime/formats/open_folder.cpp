#include "formats/open_folder.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "formats/state_names.h"
#include "plugin_calls/plugin_call.h"
#include "state/hf_folder.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

// A Hugging Face folder as a checkpoint without an optimizer's state.
class HfCheckpoint final : public Checkpoint {
 public:
  explicit HfCheckpoint(const std::string& folder) : files_(folder) {
    facts_.set("format", "Hugging Face"), facts_.set("naming", "hf");
    Value::Array notes;
    for (const std::string& warning : files_.warnings()) notes.emplace_back(warning);
    for (const char* state : {"optimizer.pt", "optimizer.bin"})
      if (std::error_code unknown; fs::exists(fs::path(folder) / state, unknown))
        notes.emplace_back(concat(folder, ": ", state, " is not read; the weights alone are taken"));
    facts_.set("notes", std::move(notes));
  }
  const Value& facts() const override { return facts_; }
  std::vector<StoredTensor> tensors() const override {
    std::vector<StoredTensor> list;
    for (const std::string& name : files_.names())
      list.push_back({kModelNames + name, files_.shape(name), files_.dtype(name)});
    return list;
  }
  void read(const std::string& name, const StateBox& box, const at::Tensor& into) const override {
    const at::Tensor rows = files_.rows(name.substr(kModelNames.size()), box.row, box.rows);
    into.copy_(rows.reshape({box.rows, -1}).narrow(1, box.column, box.columns));
  }
  std::vector<std::string> verify() const override { return {}; }

 private:
  HfFolder files_;
  Value facts_ = Value::object();
};

class CheckpointWeights final : public WeightSource {
 public:
  CheckpointWeights(std::shared_ptr<const Checkpoint> checkpoint, std::string folder)
      : checkpoint_(std::move(checkpoint)), folder_(std::move(folder)) {
    for (StoredTensor& t : checkpoint_->tensors())
      if (t.name.starts_with(kModelNames)) tensors_.emplace(t.name.substr(kModelNames.size()), t);
    if (const Value* notes = checkpoint_->facts().find("notes"))
      for (const Value& note : notes->items()) warnings_.push_back(note.as_string());
  }
  const std::string& path() const override { return folder_; }
  std::vector<std::string> names() const override {
    std::vector<std::string> list;
    for (const auto& [name, tensor] : tensors_) list.push_back(name);
    return list;
  }
  bool contains(const std::string& name) const override { return tensors_.count(name) > 0; }
  std::string file(const std::string&) const override { return folder_; }
  std::vector<int64_t> shape(const std::string& name) const override { return tensors_.at(name).shape; }
  at::ScalarType dtype(const std::string& name) const override { return tensors_.at(name).dtype; }
  at::Tensor rows(const std::string& name, int64_t first, int64_t count) const override {
    const StoredTensor& tensor = tensors_.at(name);
    std::vector<int64_t> shape = tensor.shape;
    int64_t columns = 1;
    for (size_t i = 1; i < shape.size(); ++i) columns *= shape[i];
    if (!shape.empty()) shape[0] = count;
    const at::Tensor values = at::empty({count, columns}, at::TensorOptions(tensor.dtype));
    checkpoint_->read(tensor.name, {first, 0, count, columns}, values);
    return values.view(shape);
  }
  const std::vector<std::string>& warnings() const override { return warnings_; }

 private:
  const std::shared_ptr<const Checkpoint> checkpoint_;
  const std::string folder_;
  std::map<std::string, StoredTensor> tensors_;
  std::vector<std::string> warnings_;
};

// One checkpoint of a folder that may have others: what it says of damage is followed by how to take one of those.
class OneOfMany final : public Checkpoint {
 public:
  OneOfMany(std::shared_ptr<const Checkpoint> inner, std::string remedy)
      : inner_(std::move(inner)), remedy_(std::move(remedy)) {}
  const Value& facts() const override { return inner_->facts(); }
  std::vector<StoredTensor> tensors() const override { return inner_->tensors(); }
  void read(const std::string& name, const StateBox& box, const at::Tensor& into) const override {
    try {
      inner_->read(name, box, into);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::checkpoint) throw;
      throw fail(e.code(), e.what(), remedy_);
    }
  }
  std::vector<std::string> verify() const override { return inner_->verify(); }

 private:
  const std::shared_ptr<const Checkpoint> inner_;
  const std::string remedy_;
};

// What every command can do that reads the weights of one checkpoint, whether or not it can name one.
std::string other_checkpoints(const std::string& run) {
  return concat("\n   which checkpoint is whole: drivetrain checkpoint verify ", one_line(run),
                "\n   the weights of one: drivetrain checkpoint convert ", one_line(run), " NEW --to hf --tag TAG");
}

// Of a tag, or of any for "": what is wrong with it; empty: it is not there.
std::string damage_of(const CheckpointStore& store, const std::string& tag) {
  for (const StoreProblem& problem : store.problems())
    if (!problem.left_over && (tag.empty() || problem.tag == tag))
      return concat("the checkpoint ", problem.tag, " cannot be used: ", problem.text);
  return "";
}

std::string text_of(const Value& facts, const char* key) {
  const Value* value = facts.find(key);
  return value && value->is_string() ? value->as_string() : "";
}

std::vector<std::string> names_of(const std::vector<StoredTag>& tags) {
  std::vector<std::string> names;
  for (const StoredTag& one : tags) names.push_back(one.tag);
  return names;
}

// Folders in which one checkpoint of many lies deeper: "\n   it holds checkpoint-500 and checkpoint-1000: give one".
std::string checkpoints_of_trainer(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code unknown;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, unknown))
    if (entry.path().filename().string().starts_with("checkpoint-")) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names.empty() ? ""
                       : concat("\n   it holds ", join(names), " of Hugging Face's Trainer: give the folder of one");
}

// The tag, or the newest for ""; without a state if the store has none at all. `folder`: for messages; `place`: that
// of all tags.
OpenedFolder open_tag(const CheckpointStore& store, const std::string& tag, const std::string& folder,
                      const fs::path& place) {
  const std::vector<std::string> names = names_of(store.tags());
  if (names.empty()) return {};
  const std::string wanted = tag.empty() ? names.front() : tag, remedy = other_checkpoints(place.string());
  if (std::find(names.begin(), names.end(), wanted) == names.end()) {
    const std::string damage = damage_of(store, wanted);
    if (!damage.empty()) throw fail(ErrorCode::checkpoint, folder, ": ", damage, remedy);
    throw fail(ErrorCode::config, folder, ": has no checkpoint ", wanted, "; there are ", join(names));
  }
  try {
    return {std::make_shared<OneOfMany>(store.open(wanted), remedy), kNativeNaming, "checkpoint " + wanted};
  } catch (const Error& e) {
    if (e.code() != ErrorCode::checkpoint) throw;
    throw fail(e.code(), e.what(), remedy);
  }
}

}  // namespace

std::shared_ptr<const WeightSource> weights_of(std::shared_ptr<const Checkpoint> checkpoint,
                                               const std::string& folder) {
  return std::make_shared<CheckpointWeights>(std::move(checkpoint), folder);
}

std::shared_ptr<CheckpointFormat> FolderReaders::format(const std::string& name) const {
  return registry_.create<CheckpointFormat>(name, nullptr, services_);
}

FolderReaders::DefaultStore FolderReaders::default_store() const {
  for (const KnownPlugin& plugin : registry_.known())
    if (plugin.kind == CheckpointStore::kKind && plugin.is_default)
      return {concat(CheckpointStore::kKind, "/", plugin.name),
              registry_.create<CheckpointStore>(plugin.name, nullptr, services_)};
  return {};
}

// With the options that a run's resolved.json has for it: its checkpoints may lie elsewhere. Another store's
// checkpoints are found by giving their own folder.
FolderReaders::DefaultStore FolderReaders::store_of_run(const std::string& output_dir) const {
  const fs::path file = fs::path(output_dir) / "resolved.json";
  std::error_code unknown;
  if (!fs::is_regular_file(file, unknown)) return default_store();
  const Value config = read_json_file(file.string());
  const Value* const section = config.find(CheckpointStore::kKind);
  const Value* const type = section ? section->find("type") : nullptr;
  const Value* const params = section ? section->find("params") : nullptr;
  if (!type || !type->is_string()) return default_store();
  const std::string &name = type->as_string(), id = concat(CheckpointStore::kKind, "/", name);
  Problems problems;
  const auto options = registry_.options(CheckpointStore::kKind, name)
                           .parse(params ? *params : Value(), id, "checkpoint_store.params", problems);
  problems.throw_if_any();
  return {id, registry_.create<CheckpointStore>(name, options.get(), services_)};
}

std::shared_ptr<CheckpointStore> FolderReaders::store(const std::string& output_dir) const {
  std::shared_ptr<CheckpointStore>& known = stores_[(fs::absolute(output_dir) / "").lexically_normal().string()];
  if (known) return known;
  const DefaultStore made = store_of_run(output_dir);
  if (!made.store) throw fail(ErrorCode::plugin, "no default checkpoint_store is installed");
  plugin_call({made.id, "open_place"}, [&] { made.store->open_place(output_dir, false); });
  return known = made.store;
}

OpenedFolder FolderReaders::open(const std::string& folder, const std::string& tag) const {
  std::error_code unknown;
  if (!fs::is_directory(folder, unknown)) throw fail(ErrorCode::config, folder, ": is no folder");
  // Hugging Face's Trainer has beside its weights what DeepSpeed and FSDP saved, with float32 values and moments.
  const bool weights = tag.empty() && HfFolder::has_weights(folder);
  if (weights && !fs::exists(fs::path(folder) / "trainer_state.json", unknown))
    return {std::make_shared<HfCheckpoint>(folder), "hf", "Hugging Face folder"};
  if (OpenedFolder native = open_native(folder, tag); native.state) return native;

  std::vector<std::string> known, descriptions;
  std::shared_ptr<CheckpointFormat> found;
  std::string id;
  for (const std::string& name : registry_.names(CheckpointFormat::kKind)) {
    const auto one = format(name);
    const std::string of = concat(CheckpointFormat::kKind, "/", name);
    const std::string description = plugin_call({of, "recognizes"}, [&] { return one->recognizes(folder); });
    known.push_back(name);
    if (description.empty()) continue;
    descriptions.push_back(description);
    found = one, id = of;
  }
  if (!found && weights) return {std::make_shared<HfCheckpoint>(folder), "hf", "Hugging Face folder"};
  if (descriptions.size() > 1)
    throw fail(ErrorCode::config, folder, ": looks like several things: ", join(descriptions),
               "\n   give the folder that holds the files of one of them");
  if (!found && fs::exists(fs::path(folder) / "config.json", unknown)) HfFolder{folder};  // says what is missing
  const bool is_run = !found && fs::is_regular_file(fs::path(folder) / "resolved.json", unknown);
  if (const std::string damage = is_run ? damage_of(*store(folder), tag) : ""; !damage.empty())
    throw fail(ErrorCode::checkpoint, folder, ": none of its checkpoints can be used: ", damage,
               "\n   what is damaged: drivetrain checkpoint verify ", one_line(folder));
  if (!found)
    throw fail(ErrorCode::config, folder, ": no known checkpoint is there; known are Hugging Face folders with ",
               "safetensors, checkpoints of drivetrain, and ", join(known), checkpoints_of_trainer(folder));
  OpenedFolder opened;
  opened.state =
      plugin_call({.id = id, .hook = "open", .keeps_errors = true}, [&] { return found->open(folder, tag); });
  opened.description = text_of(opened.state->facts(), "format");
  opened.naming = text_of(opened.state->facts(), "naming");
  if (opened.description.empty()) opened.description = descriptions.front();
  if (weights) opened.description += ", which the Trainer's folder holds beside its weights";
  return opened;
}

// The folder of a run, its checkpoints, or a tag of these; and the last two wherever they lie.
OpenedFolder FolderReaders::open_native(const std::string& folder, const std::string& tag) const {
  const fs::path path = fs::absolute(folder).lexically_normal();
  const fs::path plain = path.has_filename() ? path : path.parent_path();
  const std::string tag_or_name = tag.empty() ? plain.filename().string() : tag;
  struct Place {
    fs::path run;
    std::string tag;
  };
  for (const Place& place :
       {Place{plain, tag}, Place{plain.parent_path(), tag}, Place{plain.parent_path().parent_path(), tag_or_name}}) {
    std::error_code unknown;
    const fs::path checkpoints = place.run / "checkpoints";
    const bool below = plain == place.run || plain == checkpoints || plain.parent_path() == checkpoints;
    const bool a_run = plain == place.run && fs::is_regular_file(place.run / "resolved.json", unknown);
    if (!a_run && (!below || !fs::is_directory(checkpoints, unknown))) continue;
    OpenedFolder found = open_tag(*store(place.run.string()), place.tag, folder, place.run);
    if (found.state) return found;
  }
  const DefaultStore made = default_store();
  const auto holds_tags = [&](const fs::path& place) {
    try {
      return plugin_call({made.id, "open_tags"}, [&] { return made.store->open_tags(place.string()); });
    } catch (const Error& e) {
      if (e.code() != ErrorCode::io) throw;
      return false;  // it cannot be listed, which says nothing about `folder`
    }
  };
  if (!made.store) return {};
  if (holds_tags(plain)) return open_tag(*made.store, tag, folder, plain);
  if (!holds_tags(plain.parent_path())) return {};
  const std::vector<std::string> beside = names_of(made.store->tags());
  const bool is_tag = std::find(beside.begin(), beside.end(), plain.filename().string()) != beside.end();
  return is_tag ? open_tag(*made.store, tag_or_name, folder, plain.parent_path()) : OpenedFolder{};
}

}  // namespace drivetrain
