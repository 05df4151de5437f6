#include "grown_vocabulary.h"

#include <drivetrain/error.h>
#include <drivetrain/safetensors.h>

#include <filesystem>

#include "shape_problems.h"

namespace drivetrain::gpt {
namespace {

constexpr const char* kForm = R"({"vocab_size": N, "initial_rows": "mean" or "init"})";

template <class... Parts>
Error wrong(const Parts&... parts) {
  return fail(ErrorCode::config, "model/gpt: resize_embeddings", parts...);
}

GrownVocabulary read_form(const Value& option) {
  if (!option.is_object()) throw wrong(" is ", option.to_json(), "; ", kForm, " was wanted");
  for (const Value::Member& member : option.members())
    if (member.key != "vocab_size" && member.key != "initial_rows")
      throw wrong(" has \"", member.key, "\", which is not known; ", kForm, " was wanted");
  const Value *const size = option.find("vocab_size"), *const rows = option.find("initial_rows");
  if (!size || !size->is_int() || size->as_int() < 1 || size->as_int() > kLargestSize)
    throw wrong(size ? concat(".vocab_size is ", size->to_json()) : " has no vocab_size", "; a whole number from 1 to ",
                kLargestSize, " was wanted, the rows that the embedding is to have");
  GrownVocabulary growth{size->as_int()};
  if (!rows) return growth;
  const std::string name = rows->is_string() ? rows->as_string() : "";
  if (name != "mean" && name != "init")
    throw wrong(".initial_rows is ", rows->to_json(), "; \"mean\" (of the rows that the folder has) or \"init\" (as ",
                "init_method_std says) was wanted");
  growth.rows = name == "mean" ? AbsentRows::mean : AbsentRows::init;
  return growth;
}

// The file of a folder that holds a tensor; empty: none does.
std::string file_with(const std::string& folder, const std::string& tensor) {
  const std::string index = folder + "/model.safetensors.index.json", file = folder + "/model.safetensors";
  std::error_code unknown;
  if (std::filesystem::exists(file, unknown)) return SafetensorsFile::open(file).contains(tensor) ? file : "";
  if (!std::filesystem::exists(index, unknown)) return "";
  const Value map = read_json_file(index);
  const Value* const weights = map.find("weight_map");
  const Value* const shard = weights && weights->is_object() ? weights->find(tensor) : nullptr;
  return shard && shard->is_string() ? concat(folder, "/", shard->as_string()) : "";
}

}  // namespace

std::optional<GrownVocabulary> read_growth(const Options& options, const std::optional<FolderConfig>& folder) {
  if (options.resize_embeddings.is_null()) return {};
  const GrownVocabulary growth = read_form(options.resize_embeddings);
  if (!folder)
    throw wrong(" adds rows to those of a Hugging Face folder, and ",
                options.from ? concat("from names ", *options.from, ", which has no config.json")
                             : std::string("from names none"),
                "\n   without one vocab_size alone says the size");
  if (growth.size < folder->shape.vocab)
    throw wrong(".vocab_size is ", growth.size, ", and the vocabulary of ", folder->path, " is ", folder->shape.vocab,
                "; rows are added, none is taken away");
  return growth;
}

Value growth_value(const GrownVocabulary& growth) {
  return Value::Object{{"vocab_size", growth.size},
                       {"initial_rows", growth.rows == AbsentRows::mean ? "mean" : "init"}};
}

void check_rows(const FolderConfig& folder) {
  const std::string place = std::filesystem::path(folder.path).parent_path().string();
  for (const char* const layer : {"embedding.word", "head"}) {
    const auto* const theirs = folder.family->find_tensor(layer);
    if (!theirs) continue;
    const std::string full = theirs->front().name + ".weight", &prefix = folder.family->prefix;
    for (const std::string& name : {full, full.starts_with(prefix) ? full.substr(prefix.size()) : full}) {
      const std::string file = file_with(place, name);
      if (file.empty()) continue;
      const std::vector<int64_t> shape = SafetensorsFile::open(file).shape(name);
      if (!shape.empty() && shape[0] != folder.shape.vocab)
        throw wrong(": \"", name, "\" in ", file, " has ", shape[0], " rows, and vocab_size in ", folder.path, " is ",
                    folder.shape.vocab, "; rows can be added where both are the same");
      break;
    }
  }
}

}  // namespace drivetrain::gpt
