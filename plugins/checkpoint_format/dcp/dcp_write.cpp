#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/torch_files/dcp_folder.h>
#include <drivetrain/toolkit/torch_files/torch_checkpoint.h>
#include <drivetrain/toolkit/torch_files/torch_writer.h>

#include "dcp.h"

namespace drivetrain::dcp {
namespace {

using Members = std::vector<std::pair<TorchValue, TorchValue>>;

constexpr const char* kModule = "torch.distributed.checkpoint.metadata";
constexpr uint64_t kFileBytes = uint64_t{1} << 30;
const std::string kModel = "model/", kOptimizer = "optimizer/", kGroups = "param_groups";

TorchValue of_class(const char* name, Members state, const char* module = kModule) {
  return TorchValue::object(TorchValue::global(module, name), TorchValue::dict(std::move(state)));
}

// One entry of the state dict.
struct Item {
  std::string stored;             // its name below
  std::string name;               // its full name in the folder
  std::vector<std::string> path;  // its keys in the state dict
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  double number = 0;      // a tensor with this one element, where it is none of `state`
  TorchValue plain = {};  // what is no tensor
  uint64_t bytes = 0;     // of its archive
  size_t file = 0;
  uint64_t offset = 0;

  bool is_tensor() const { return path.front() != "step" && (path.size() < 2 || path[1] != kGroups); }
  TorchValue value(const Checkpoint& state) const {
    if (!is_tensor()) return plain;
    const auto options = at::TensorOptions(dtype);
    if (stored.empty()) return at::full({}, number, options);
    const StateBox box = whole_of(shape);
    const at::Tensor values = at::empty({box.rows, box.columns}, options);
    state.read(stored, box, values);
    return values.view(shape);
  }
  // As large as the archive of the value.
  TorchValue stand_in() const {
    if (!is_tensor()) return plain;
    return at::empty(shape, at::TensorOptions(dtype).device(at::kMeta));
  }
};

std::string joined(const std::vector<std::string>& path) {
  std::string name;
  for (const std::string& word : path) name += (name.empty() ? "" : ".") + word;
  return name;
}

bool same_word(const Value& value, const std::string& word) { return value.is_string() && value.as_string() == word; }

int64_t integer_of(const Value& facts, const char* key) {
  const Value* value = facts.find(key);
  return value && value->is_int() ? value->as_int() : 0;
}

TorchValue plain_value(const Value& value) {
  if (value.is_bool()) return value.as_bool();
  if (value.is_int()) return value.as_int();
  if (value.is_number()) return value.as_double();
  if (value.is_string()) return value.as_string();
  if (!value.is_array()) return {};
  TorchValue::List items;
  for (const Value& item : value.items()) items.push_back(plain_value(item));
  return TorchValue::tuple(std::move(items));
}

const Value& member(const Value& object, const char* key) {
  static const Value none;
  const Value* const found = object.find(key);
  return found ? *found : none;
}

// The options of one of torch.optim's optimizers, all of them: loading asks for every one that the new optimizer has.
using Group = std::vector<std::pair<std::string, TorchValue>>;

Group options_of_group(const Value& facts, double weight_decay) {
  const Value& options = member(facts, "optimizer_options");
  Group group{{"lr", plain_value(member(facts, "lr"))}, {"weight_decay", weight_decay}};
  for (const char* name : {"betas", "eps", "momentum", "dampening", "nesterov"})
    if (const Value* value = options.find(name)) group.emplace_back(name, plain_value(*value));
  for (const char* name : {"amsgrad", "maximize", "capturable", "differentiable"}) group.emplace_back(name, false);
  for (const char* name : {"foreach", "fused"}) group.emplace_back(name, TorchValue());
  // DeepSpeed's Adam is AdamW unless adam_w_mode is false.
  const Value& mode = member(options, "adam_w_mode");
  const bool decoupled = !same_word(member(facts, "optimizer_type"), "adam") || !mode.is_bool() || mode.as_bool();
  group.emplace_back("decoupled_weight_decay", decoupled);
  return group;
}

// As torch.distributed.checkpoint.state_dict has them: names instead of numbers. Two groups where only matrices decay,
// in the order in which people build them.
std::vector<Item> groups_of(const Checkpoint& state) {
  TorchValue::List all, matrices, others;
  for (const StoredTensor& t : state.tensors()) {
    if (!t.name.starts_with(kModel)) continue;
    all.emplace_back(t.name.substr(kModel.size()));
    (t.shape.size() > 1 ? matrices : others).push_back(all.back());
  }
  const Value& options = member(state.facts(), "optimizer_options");
  const Value& rate = member(options, "weight_decay");
  const double decay = rate.is_number() ? rate.as_double() : 0;
  std::vector<std::pair<TorchValue::List, double>> groups{{all, decay}};
  if (decay != 0 && same_word(member(options, "decay"), "matrices") && !others.empty())
    groups = {{matrices, decay}, {others, 0}};
  std::vector<Item> items;
  for (size_t i = 0; i < groups.size(); ++i) {
    Group group = options_of_group(state.facts(), groups[i].second);
    group.emplace_back("params", TorchValue::list(groups[i].first));
    for (auto& [name, value] : group) {
      Item item;
      item.path = {"optimizer", kGroups, std::to_string(i), name};
      item.plain = value;
      items.push_back(std::move(item));
    }
  }
  return items;
}

std::vector<Item> items_of(const Checkpoint& state) {
  std::vector<Item> items;
  const auto add = [&](Item item) {
    item.name = joined(item.path);
    items.push_back(std::move(item));
  };
  // Of a model that ties weights, state_dict() has every one under all of its names.
  const Value& tied = member(state.facts(), "tied");
  const auto updates = static_cast<double>(integer_of(state.facts(), "updates"));
  for (const StoredTensor& t : state.tensors()) {
    const size_t dot = t.name.rfind('.');
    if (t.name.starts_with(kModel)) {
      const std::string name = t.name.substr(kModel.size());
      add({t.name, "", {"model", name}, t.shape, t.dtype});
      if (tied.is_object())
        for (const Value::Member& one : tied.members())
          if (same_word(one.value, name)) add({t.name, "", {"model", one.key}, t.shape, t.dtype});
    } else if (t.name.starts_with(kOptimizer) && dot != std::string::npos) {
      const std::string name = t.name.substr(kOptimizer.size(), dot - kOptimizer.size());
      add({t.name, "", {"optimizer", "state", name, t.name.substr(dot + 1)}, t.shape, t.dtype});
      if (t.name.ends_with(".exp_avg")) add({"", "", {"optimizer", "state", name, "step"}, {}, at::kFloat, updates});
    }
  }
  if (member(state.facts(), "optimizer_options").is_object())
    for (Item& item : groups_of(state)) add(std::move(item));
  Item step;
  step.path = {"step"}, step.plain = integer_of(state.facts(), "step");
  add(std::move(step));
  return items;
}

std::string file_name(size_t number) { return concat("__0_", number, ".distcp"); }

// Where every item stands; returns the sizes of the files.
std::vector<uint64_t> place(std::vector<Item>& items) {
  std::vector<uint64_t> files(1, 0);
  for (Item& item : items) {
    item.bytes = TorchArchive("archive", item.stand_in()).bytes();
    if (files.back() > 0 && files.back() + item.bytes > kFileBytes) files.push_back(0);
    item.file = files.size() - 1, item.offset = files.back();
    files.back() += item.bytes;
  }
  return files;
}

TorchValue tensor_metadata(const Item& item) {
  const TorchValue layout =
      TorchValue::call(TorchValue::global("torch.serialization", "_get_layout"), {"torch.strided"});
  const TorchValue memory = TorchValue::call(TorchValue::global(kModule, "_MEM_FORMAT_ENCODING"), {0});
  const TorchValue dtype = TorchValue::global("torch", torch_dtype_name(item.dtype));
  const TorchValue properties = TorchValue::object(TorchValue::global(kModule, "TensorProperties"),
                                                   TorchValue::tuple({dtype, layout, false, memory, false}));
  const TorchValue chunk =
      of_class("ChunkStorageMetadata", {{"offsets", TorchValue::size(std::vector<int64_t>(item.shape.size(), 0))},
                                        {"sizes", TorchValue::size(item.shape)}});
  return of_class(
      "TensorStorageMetadata",
      {{"properties", properties}, {"size", TorchValue::size(item.shape)}, {"chunks", TorchValue::list({chunk})}});
}

std::string metadata_of(const std::vector<Item>& items) {
  Members tensors, paths, places;
  for (const Item& item : items) {
    tensors.emplace_back(item.name, item.is_tensor() ? tensor_metadata(item) : of_class("BytesStorageMetadata", {}));
    TorchValue::List path;
    for (const std::string& word : item.path) {
      const bool of_list = path.size() == 2 && item.path[1] == kGroups;
      path.push_back(of_list ? TorchValue(std::stoi(word)) : TorchValue(word));
    }
    paths.emplace_back(item.name, TorchValue::tuple(std::move(path)));
    Members index{{"fqn", item.name}, {"index", item.is_tensor() ? TorchValue(0) : TorchValue()}};
    if (item.is_tensor()) index.emplace_back("offset", TorchValue::size(std::vector<int64_t>(item.shape.size(), 0)));
    places.emplace_back(of_class("MetadataIndex", std::move(index)),
                        of_class("_StorageInfo",
                                 {{"relative_path", file_name(item.file)},
                                  {"offset", static_cast<int64_t>(item.offset)},
                                  {"length", static_cast<int64_t>(item.bytes)}},
                                 "torch.distributed.checkpoint.filesystem"));
  }
  const TorchValue about = of_class("StorageMeta", {{"checkpoint_id", TorchValue()},
                                                    {"save_id", TorchValue()},
                                                    {"load_id", TorchValue()},
                                                    {"modules", TorchValue::list({})}});
  return pickle_of(of_class("Metadata", {{"state_dict_metadata", TorchValue::dict(std::move(tensors))},
                                         {"planner_data", TorchValue::dict(std::move(paths))},
                                         {"storage_data", TorchValue::dict(std::move(places))},
                                         {"storage_meta", about},
                                         {"version", "1.0.0"}}));
}

}  // namespace

void write_folder(const std::string& folder, const Checkpoint& state) {
  std::vector<Item> items = items_of(state);
  const std::vector<uint64_t> sizes = place(items);
  FileCalls& calls = system_file_calls();
  size_t next = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    OutputFile file(calls, folder + "/" + file_name(i), sizes[i]);
    for (; next < items.size() && items[next].file == i; ++next) {
      const TorchArchive archive("archive", items[next].value(state));
      if (archive.bytes() != items[next].bytes)
        throw fail(ErrorCode::internal, items[next].name, ": an archive of ", archive.bytes(),
                   " bytes was planned with ", items[next].bytes);
      archive.write(file, items[next].offset);
    }
    file.finish();
  }
  write_durable_file(calls, folder + "/" + DcpFolder::kMetadata, metadata_of(items));
  sync_folder(calls, folder);
}

}  // namespace drivetrain::dcp
