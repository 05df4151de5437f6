#include "hf_config.h"

#include <drivetrain/error.h>
#include <drivetrain/safetensors.h>
#include <drivetrain/toolkit/files/not_a_model.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <regex>
#include <set>

#include "hf_keys.h"
#include "hf_layers.h"
#include "hf_rope.h"

namespace drivetrain::gpt {
namespace {

constexpr const char* kDtypes[] = {"float32", "bfloat16", "float16", "float64"};
constexpr size_t kShown = 6;  // names in a message

std::string read_dtype(const HfReader& reader) {
  const char* const key = reader.find("dtype") ? "dtype" : "torch_dtype";
  if (!reader.find(key)) return "";
  const Value *const fresh = reader.find("dtype"), *const old = reader.find("torch_dtype");
  if (fresh && old && !same_fact(*fresh, *old))
    throw reader.wrong("\"dtype\" is ", fresh->to_json(), " and \"torch_dtype\" is ", old->to_json(),
                       ": two spellings of one fact, which differ\n   keep the one that the weights were trained with");
  std::string name = reader.text(key, "");
  if (name.starts_with("torch.")) name.erase(0, 6);
  reader.refuse_if(std::find(std::begin(kDtypes), std::end(kDtypes), name) == std::end(kDtypes), key,
                   "known are float32, bfloat16, float16 and float64");
  return name;
}

// "model.layers.3.mlp.up_proj.weight": "model.layers.{}.mlp.up_proj".
std::string layer_of(const std::string& tensor) {
  static const std::regex number("\\.[0-9]+\\."), end("\\.(weight|bias)$");
  return std::regex_replace(std::regex_replace(tensor, number, ".{}."), end, "");
}

std::set<std::string> layers_of(const Family& family) {
  std::set<std::string> names;
  for (const auto& [ours, theirs] : family.tensors)
    for (const FamilyTensor& t : theirs) names.insert(t.name);
  return names;
}

std::string first_of(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += concat(i ? ", " : "", names[i]);
  return names.size() > kShown ? concat(text, " and ", names.size() - kShown, " more") : text;
}

// What stands in the way of a file of a family that is not known: tensors that the nearest one does not have.
std::string nearest_family(const std::vector<std::string>& tensors) {
  std::set<std::string> layers;
  for (const std::string& tensor : tensors) layers.insert(layer_of(tensor));
  FamilyPtr nearest;
  std::vector<std::string> least;
  for (const FamilyPtr& family : known_families()) {
    const std::set<std::string> own = layers_of(*family);
    std::vector<std::string> strange;
    std::set_difference(layers.begin(), layers.end(), own.begin(), own.end(), std::back_inserter(strange));
    if (!nearest || strange.size() < least.size()) nearest = family, least = std::move(strange);
  }
  if (layers.empty()) return "\n   describe it by the option \"family\", or name one that it is like";
  if (least.empty())
    return concat("\n   its tensors are those of ", nearest->title, "; if it computes the same, set \"family\": \"",
                  nearest->model_type, "\"");
  return concat("\n   the nearest is ", nearest->title, " (", nearest->model_type, "), which has no ", first_of(least),
                "\n   if the options of model/gpt can say what these are, describe it by the option \"family\"");
}

std::vector<std::string> tensors_in(const std::string& folder) {
  const std::string index = folder + "/model.safetensors.index.json", file = folder + "/model.safetensors";
  std::error_code unknown;
  std::vector<std::string> names;
  if (std::filesystem::exists(index, unknown)) {
    const Value map = read_json_file(index);
    const Value* const weights = map.find("weight_map");
    if (weights && weights->is_object())
      for (const Value::Member& member : weights->members()) names.push_back(member.key);
  } else if (std::filesystem::exists(file, unknown)) {
    names = SafetensorsFile::open(file).names();
  }
  return names;
}

// Experts of a layer in one tensor [experts, ...]: so transformers 5 has them in memory, and no file of a family.
void refuse_stacked_experts(const Family& family, const std::vector<std::string>& tensors, const std::string& path) {
  constexpr std::string_view kExperts = ".experts.";
  const auto* const experts = family.find_tensor("block.{}.mlp.experts.fc");
  if (!experts) return;
  const std::string* stacked = nullptr;
  for (const std::string& tensor : tensors) {
    const size_t at = tensor.find(kExperts);
    if (at == std::string::npos) continue;
    if (std::isdigit(static_cast<unsigned char>(tensor[at + kExperts.size()]))) return;
    stacked = stacked ? stacked : &tensor;
  }
  if (stacked)
    throw fail(ErrorCode::config, "model/gpt: ", path, ": the folder has \"", *stacked, "\", the experts of a layer ",
               "stacked in one tensor, as transformers 5 holds them in memory; a tensor for each expert was wanted (",
               experts->front().name, ".weight: layer, expert)\n   load the folder with transformers and call ",
               "save_pretrained(FOLDER), which writes them so");
}

FamilyPtr family_in(const Value& config, const std::string& path, const std::vector<std::string>& tensors) {
  const Value* const type = config.find("model_type");
  const std::string name = type && type->is_string() ? type->as_string() : "";
  if (FamilyPtr family = known_family(name)) return family;
  if (const Value* const inner = config.find("text_config"); inner && inner->is_object())
    throw fail(ErrorCode::config, "model/gpt: ", path, ": \"text_config\": a model of text and something else; its ",
               "text part, saved alone, can be read");
  if (name.empty())
    throw fail(ErrorCode::config, "model/gpt: ", path, ": has no \"model_type\"; known are ", known_names());
  throw fail(ErrorCode::config, "model/gpt: ", path, ": model_type is \"", name, "\"; known are ", known_names(),
             nearest_family(tensors));
}

// Whether a file that says nothing of the key means the same.
bool goes_without_saying(const FamilyKey& key, const Shape& s, const Value& ours) {
  if (!key.optional) return false;
  if (key.sets[0] == "kv_channels") return ours == Value(s.heads > 0 ? s.hidden / s.heads : 0);
  return false;
}

// Moves what is there to the spelling that is written, and replaces it where it says something else.
void write_key(const FamilyKey& key, const Shape& s, const Value& facts, const Value* base_facts, Value& c) {
  const std::vector<std::string> names = spellings(key.names);
  const auto there = std::find_if(names.begin(), names.end(), [&](const std::string& name) { return c.find(name); });
  const Value* ours = facts.find(key.sets.front());
  const bool is_same = base_facts && *base_facts->find(key.sets.front()) == *ours;
  Value theirs = to_theirs(key, *ours).value_or(Value());
  if (is_same && there != names.end()) theirs = *c.find(*there);
  for (size_t i = 1; i < names.size(); ++i) {
    if (key.all_spellings && c.find(names[i]))
      c.set(names[i], theirs);
    else
      c.erase(names[i]);
  }
  const bool was_absent = is_same && there == names.end();
  if (!was_absent && (there != names.end() || !goes_without_saying(key, s, *ours))) c.set(names.front(), theirs);
}

}  // namespace

std::optional<FolderConfig> read_folder(const std::string& folder, const FamilyPtr& family) {
  const std::string path = folder + "/config.json";
  std::error_code unknown;
  if (!std::filesystem::is_directory(folder, unknown))
    throw fail(ErrorCode::config, "model/gpt: from names ", folder,
               ", which is not a folder; a Hugging Face model folder or a checkpoint was wanted");
  if (const std::string other = held_instead_of_model(folder); !other.empty())
    throw fail(ErrorCode::config, "model/gpt: from names ", folder, ", which ", other);
  if (!std::filesystem::exists(path, unknown)) return std::nullopt;
  return parse_config(read_json_file(path), path, family, tensors_in(folder));
}

FolderConfig parse_config(const Value& config, const std::string& path, const FamilyPtr& family,
                          const std::vector<std::string>& tensors) {
  FolderConfig result{path, config, family ? family : family_in(config, path, tensors), {}, {}, {}};
  refuse_stacked_experts(*result.family, tensors, path);
  const HfReader reader(result.config, path, *result.family);
  Value options = reader.options();
  read_layers(reader, options);
  if (result.family->rope) read_rope(reader, options);
  result.dtype = read_dtype(reader);
  try {
    result.shape = shape_from_options({}, options);
  } catch (const Error& e) {
    throw reader.wrong(e.what());
  }
  result.unknown = reader.unknown();
  return result;
}

Value write_config(const Family& family, const Shape& s, const Value& base) {
  const bool fresh = !base.is_object();
  Value c = fresh ? Value::object() : base;
  const std::string dtype = read_dtype(HfReader(c, "config.json", family));
  const Value facts = facts_of(s);
  std::optional<Value> base_facts;
  std::optional<Shape> base_shape;
  if (!fresh) {
    base_shape = parse_config(base, "config.json", std::make_shared<const Family>(family)).shape;
    base_facts = facts_of(*base_shape);
  }
  for (const FamilyKey& key : family.keys)
    if (key.use == KeyUse::honoured && key.reads.empty())
      write_key(key, s, facts, base_facts ? &*base_facts : nullptr, c);
  c.set("model_type", family.model_type);
  if (!family.architecture.empty() && (fresh || !c.find("architectures")))
    c.set("architectures", Value::Array{family.architecture});
  for (const char* const key : {"dtype", "torch_dtype"}) c.set(key, dtype.empty() ? "float32" : dtype);
  if (fresh) write_layers(family, s, c);
  write_balance(family, s, base_shape ? &*base_shape : nullptr, c);
  write_rope(family, s, c);
  // Which tokens begin and end a text, the run's tokenizer knows; transformers' own defaults may lie outside.
  if (fresh)
    for (const char* const key : {"bos_token_id", "eos_token_id", "pad_token_id"}) c.set(key, Value());
  if (fresh) c.set("use_cache", true);
  auto& members = c.members();
  std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  return c;
}

}  // namespace drivetrain::gpt
