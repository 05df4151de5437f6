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
const std::string kModel = "model/", kOptimizer = "optimizer/";

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
  double number = 0;   // where it is no tensor of `state`
  uint64_t bytes = 0;  // of its archive
  size_t file = 0;
  uint64_t offset = 0;

  bool is_tensor() const { return path.front() != "step"; }
  TorchValue value(const Checkpoint& state) const {
    if (!is_tensor()) return static_cast<int64_t>(number);
    const auto options = at::TensorOptions(dtype);
    if (stored.empty()) return at::full({}, number, options);
    const StateBox box = whole_of(shape);
    const at::Tensor values = at::empty({box.rows, box.columns}, options);
    state.read(stored, box, values);
    return values.view(shape);
  }
  // As large as the archive of the value.
  TorchValue stand_in() const {
    if (!is_tensor()) return static_cast<int64_t>(number);
    return at::empty(shape, at::TensorOptions(dtype).device(at::kMeta));
  }
};

std::string joined(const std::vector<std::string>& path) {
  std::string name;
  for (const std::string& word : path) name += (name.empty() ? "" : ".") + word;
  return name;
}

int64_t integer_of(const Value& facts, const char* key) {
  const Value* value = facts.find(key);
  return value && value->is_int() ? value->as_int() : 0;
}

std::vector<Item> items_of(const Checkpoint& state) {
  std::vector<Item> items;
  const auto add = [&](Item item) {
    item.name = joined(item.path);
    items.push_back(std::move(item));
  };
  const auto updates = static_cast<double>(integer_of(state.facts(), "updates"));
  for (const StoredTensor& t : state.tensors()) {
    const size_t dot = t.name.rfind('.');
    if (t.name.starts_with(kModel)) {
      add({t.name, "", {"model", t.name.substr(kModel.size())}, t.shape, t.dtype});
    } else if (t.name.starts_with(kOptimizer) && dot != std::string::npos) {
      const std::string name = t.name.substr(kOptimizer.size(), dot - kOptimizer.size());
      add({t.name, "", {"optimizer", "state", name, t.name.substr(dot + 1)}, t.shape, t.dtype});
      if (t.name.ends_with(".exp_avg")) add({"", "", {"optimizer", "state", name, "step"}, {}, at::kFloat, updates});
    }
  }
  add({"", "", {"step"}, {}, at::kFloat, static_cast<double>(integer_of(state.facts(), "step"))});
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
    paths.emplace_back(item.name, TorchValue::tuple(TorchValue::List(item.path.begin(), item.path.end())));
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
