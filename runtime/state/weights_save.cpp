#include <ATen/ops/cat.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <system_error>

#include <drivetrain/error.h>
#include <drivetrain/safetensors.h>
#include <drivetrain/toolkit/dtype_name.h>
#include <drivetrain/toolkit/files/read_file.h>

#include "state/foreign_tensors.h"
#include "state/hf_folder.h"
#include "state/new_file.h"
#include "state/safetensors_writer.h"
#include "state/weights.h"

namespace drivetrain {
namespace {

constexpr const char* kStep = "step";                   // in the metadata
constexpr uint64_t kMostBesides = uint64_t{256} << 20;  // bytes of a file that is copied

// One foreign tensor to write.
struct ExportPart {
  SafetensorsItem item;
  uint64_t bytes = 0;
  size_t shard = 0;
};

// The parts of one rule by their tensor. They may be the tensor's rows in another order.
std::map<std::string, std::vector<WeightPart>> by_tensor(const WeightRules& rules, const WeightRule& rule) {
  std::map<std::string, std::vector<WeightPart>> tensors;
  for (const WeightPart& part : rule.parts) tensors[written_name(rules, part)].push_back(part);
  return tensors;
}

int64_t rows_of(const std::vector<WeightPart>& parts) {
  int64_t rows = 0;
  for (const WeightPart& part : parts) rows += part.rows;
  return rows;
}

// All foreign tensors by name, sorted, as the rules list them.
std::map<std::string, ExportPart> export_parts(const WeightRules& rules,
                                               const std::map<std::string, std::vector<int64_t>>& shapes,
                                               at::ScalarType dtype) {
  std::map<std::string, ExportPart> parts;
  for (const WeightRule& rule : rules.rules) {
    const auto shape = shapes.find(rule.param);
    if (shape == shapes.end()) throw fail(ErrorCode::internal, "export: the shape of ", rule.param, " is not given");
    for (const auto& [name, own] : by_tensor(rules, rule)) {
      ExportPart out;
      out.item.name = name;
      out.item.shape = shape->second;
      out.item.shape.at(0) = rows_of(own);
      out.item.dtype = dtype;
      out.bytes = c10::elementSize(dtype);
      for (const int64_t size : out.item.shape) out.bytes *= static_cast<uint64_t>(size);
      if (rule.transposed) std::rotate(out.item.shape.begin(), out.item.shape.begin() + 1, out.item.shape.end());
      int64_t end = 0;
      for (const WeightPart& part : own) end = std::max(end, part.first + part.rows);
      // Parts of several parameters would have to be put together, which no format with such folders asks for.
      if (!parts.emplace(name, out).second || end != rows_of(own))
        throw fail(ErrorCode::internal, "export: ", rule.param, " is only a part of what ", name, " holds");
    }
    if (const int64_t rows = rows_of(rule.parts); rows != shape->second[0])
      throw fail(ErrorCode::internal, "export: the parts of ", rule.param, " have ", rows, " rows, it has ",
                 shape->second[0]);
  }
  return parts;
}

// Fills shards greedily in the order of names; a tensor above the limit gets one of its own. Returns how many there
// are.
size_t assign_shards(std::map<std::string, ExportPart>& parts, uint64_t max_shard_bytes) {
  size_t shard = 0;
  uint64_t filled = 0;
  for (auto& [name, part] : parts) {
    if (filled > 0 && filled + part.bytes > max_shard_bytes) ++shard, filled = 0;
    part.shard = shard;
    filled += part.bytes;
  }
  return shard + 1;
}

std::string shard_name(const ExportedWeights& set, size_t index, size_t count) {
  if (!set.is_model()) return set.weights_file;
  if (count == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

Value shard_index(const ExportedWeights& set, const std::map<std::string, ExportPart>& parts, size_t count) {
  Value weight_map = Value::object();
  uint64_t bytes = 0;
  for (const auto& [name, part] : parts) {
    weight_map.members().push_back({name, Value(shard_name(set, part.shard, count))});
    bytes += part.bytes;
  }
  Value metadata = Value::object(), index = Value::object();
  metadata.set("total_size", static_cast<int64_t>(bytes));
  index.set("metadata", std::move(metadata));
  index.set("weight_map", std::move(weight_map));
  return index;
}

// What transformers writes for a model without sampling settings of its own.
Value generation_config(const Value& config) {
  Value out = Value::object();
  out.set("_from_model_config", true);
  out.set("output_attentions", false);
  out.set("output_hidden_states", false);
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "transformers_version", "use_cache"}) {
    const Value* value = config.find(key);
    if (value && !value->is_null()) out.set(key, *value);
  }
  return out;
}

void write_text_file(const std::string& folder, const std::string& name, const std::string& text) {
  NewFile file(folder + "/" + name, text.size());
  file.write_at(0, text.data(), text.size());
  file.commit();
}

void write_json_file(const std::string& folder, const std::string& name, const Value& value) {
  write_text_file(folder, name, value.to_json(2) + "\n");
}

// Named chat templates keep the folder of their own, in which transformers looks for them.
constexpr const char* kMoreTemplates = "additional_chat_templates";

void copy_file(std::string folder, const std::string& path) {
  const std::optional<std::string> text = read_file(path, kMostBesides);
  if (!text) throw fail(ErrorCode::io, path, ": was there when the run began and is to be copied into ", folder);
  if (std::filesystem::path(path).parent_path().filename() == kMoreTemplates) {
    folder += concat("/", kMoreTemplates);
    std::filesystem::create_directories(folder);
  }
  write_text_file(folder, std::filesystem::path(path).filename().string(), *text);
}

// config.json with the type of the weights, under both keys that it has for it.
Value typed(Value config, at::ScalarType dtype) {
  for (const char* const key : {"dtype", "torch_dtype"})
    if (config.find(key)) config.set(key, dtype_name(dtype));
  return config;
}

void write_tensors(const std::string& folder, const ExportedWeights& set,
                   const std::map<std::string, ExportPart>& parts, size_t count, int64_t step) {
  std::vector<std::vector<SafetensorsItem>> items(count);
  for (const auto& [name, part] : parts) items[part.shard].push_back(part.item);
  SafetensorsMetadata metadata{{"format", "pt"}};
  metadata.insert(set.metadata.begin(), set.metadata.end());
  if (step >= 0) metadata[kStep] = std::to_string(step);
  std::vector<std::unique_ptr<SafetensorsWriter>> shards;
  for (size_t i = 0; i < count; ++i) {
    shards.push_back(std::make_unique<SafetensorsWriter>(folder + "/" + shard_name(set, i, count), items[i], metadata));
  }
  for (const WeightRule& rule : set.rules.rules) {
    const at::Tensor whole = set.fetch(rule.param);
    std::map<std::string, std::map<int64_t, at::Tensor>> rows;  // by tensor and the row where they begin
    int64_t first = 0;
    for (const WeightPart& part : rule.parts) {
      rows[written_name(set.rules, part)][part.first] = whole.narrow(0, first, part.rows);
      first += part.rows;
    }
    for (const auto& [name, pieces] : rows) {
      Tensors list;
      for (const auto& [row, piece] : pieces) list.push_back(piece);
      const at::Tensor all = list.size() == 1 ? list.front() : at::cat(list);
      const ExportPart& out = parts.at(name);
      shards[out.shard]->put(name, (rule.transposed ? all.movedim(0, -1) : all).to(out.item.dtype));
    }
  }
  for (const auto& shard : shards) shard->finish();
}

// What a model's folder holds beside its tensors.
void write_model_files(const std::string& folder, const ExportedWeights& set,
                       const std::map<std::string, ExportPart>& parts, size_t count) {
  if (count > 1) write_json_file(folder, "model.safetensors.index.json", shard_index(set, parts, count));
  write_json_file(folder, "config.json", typed(set.rules.config, set.extras.dtype));
  write_json_file(folder, "generation_config.json",
                  set.extras.generation.is_object() ? set.extras.generation : generation_config(set.rules.config));
  for (const std::string& path : set.extras.files) copy_file(folder, path);
}

void write_set(const std::string& folder, const ExportedWeights& set,
               const std::map<std::string, std::vector<int64_t>>& shapes, int64_t step, uint64_t max_shard_bytes) {
  std::map<std::string, ExportPart> parts = export_parts(set.rules, shapes, set.extras.dtype);
  const uint64_t most = set.is_model() ? max_shard_bytes : std::numeric_limits<uint64_t>::max();
  const size_t count = assign_shards(parts, most);
  write_tensors(folder, set, parts, count, step);
  if (set.is_model())
    write_model_files(folder, set, parts, count);
  else if (!set.config_file.empty())
    write_json_file(folder, set.config_file, set.rules.config);
}

// Of the file of weights that lies there; -1: it says none, or cannot be read.
int64_t step_of_file(const std::string& path) {
  try {
    const SafetensorsFile file = SafetensorsFile::open(path);
    for (const auto& [key, text] : file.metadata())
      if (int64_t step = 0;
          key == kStep && std::from_chars(text.data(), text.data() + text.size(), step).ec == std::errc())
        return step;
  } catch (const Error&) {  // not ours
  }
  return -1;
}

// In the folder and those right below it, sorted.
std::set<std::string> weight_files(const std::string& folder) {
  namespace fs = std::filesystem;
  std::set<std::string> files;
  std::error_code failed;
  for (fs::recursive_directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    if (at.depth() > 0) at.disable_recursion_pending();
    if (std::error_code unknown; at->path().extension() == ".safetensors" && at->is_regular_file(unknown))
      files.insert(at->path().string());
  }
  return files;
}

}  // namespace

void save_weights(const std::string& folder, const std::vector<ExportedWeights>& sets,
                  const std::map<std::string, std::vector<int64_t>>& shapes, int64_t step, uint64_t max_shard_bytes) {
  NewFolder target(folder);
  for (const ExportedWeights& set : sets) {
    const std::string place = target.temporary() + (set.folder.empty() ? "" : "/" + set.folder);
    std::error_code failed;
    std::filesystem::create_directories(place, failed);
    if (failed) throw fail(ErrorCode::io, place, ": the folder cannot be made: ", failed.message());
    write_set(place, set, shapes, step, max_shard_bytes);
  }
  target.commit();
}

int64_t step_of_hf_folder(const std::string& folder) {
  if (HfFolder::has_weights(folder)) {
    try {
      const HfFolder found(folder);
      const std::vector<std::string> names = found.names();
      return names.empty() ? -1 : step_of_file(found.file(names.front()));
    } catch (const Error&) {  // not ours
      return -1;
    }
  }
  for (const std::string& path : weight_files(folder))
    if (const int64_t step = step_of_file(path); step >= 0) return step;
  return -1;
}

}  // namespace drivetrain
