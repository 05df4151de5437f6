#include "train/export_extras.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include <drivetrain/toolkit/dtype_name.h>
#include <drivetrain/toolkit/files/read_file.h>

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

// What transformers and tokenizers read of a tokenizer.
constexpr const char* kTokenizerFiles[] = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt",     "tokenizer.model",       "chat_template.jinja",     "chat_template.json"};
constexpr const char* kIds[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
constexpr const char* kMoreTemplates = "additional_chat_templates";
constexpr const char* kGeneration = "generation_config.json";

bool is_file(const fs::path& path) {
  std::error_code unknown;
  return fs::is_regular_file(path, unknown);
}

// The name under which a file is found once in the new folder.
fs::path name_in_folder(const fs::path& path) {
  const fs::path folder = path.parent_path().filename();
  return folder == kMoreTemplates ? folder / path.filename() : path.filename();
}

// The files of a tokenizer, and what lies beside them for it: a chat template, for example. By name in the new folder.
std::vector<std::string> files_of(const std::vector<std::string>& read, const std::string& folder) {
  std::set<fs::path> folders, names;
  std::vector<std::string> paths;
  const auto add = [&](const fs::path& path) {
    if (is_file(path) && names.insert(name_in_folder(path)).second) paths.push_back(path.string());
  };
  for (const std::string& file : read) add(file), folders.insert(fs::path(file).parent_path());
  if (read.empty() && !folder.empty()) folders.insert(folder);
  for (const fs::path& place : folders)
    for (const char* const name : kTokenizerFiles) add(place / name);
  // Named chat templates, which stand in a folder of their own there and here.
  for (const fs::path& place : folders)
    for (const std::string& name : names_in((place / kMoreTemplates).string(), InFolder::files))
      if (fs::path(name).extension() == ".jinja") add(place / kMoreTemplates / name);
  return paths;
}

class Extras {
 public:
  Extras(WeightRules& rules, const ExportSource& source, const TokenizerReaders& readers, Log& log)
      : rules_(rules), source_(source), readers_(readers), log_(log) {
    if (!source.origin.empty() && is_file(fs::path(source.origin) / "config.json")) origin_ = source.origin;
  }

  HfExtras make() {
    const Value* const section = tokenizer_section(source_.config);
    std::optional<OpenedTokenizer> own;
    if (section) own = tried<OpenedTokenizer>([&] { return readers_.open_section(*section, "the configuration"); });
    const bool others = own && !is_origins(*own);
    extras_.files = files_of(own ? own->facts.files : std::vector<std::string>{}, own ? "" : origin_);
    if (const fs::path path = fs::path(origin_) / kGeneration; !origin_.empty() && is_file(path))
      extras_.generation = tried<Value>([&] { return read_json_file(path.string()); }).value_or(Value());
    if (others)
      for (Value* file : files_with_ids()) set_ids(*file, own->facts);
    for (Value* file : files_with_ids()) add_ends(*file);
    set_dtype();
    return std::move(extras_);
  }

 private:
  template <class Made, class Make>
  std::optional<Made> tried(const Make& make) const {
    try {
      return make();
    } catch (const Error& e) {
      log_.warning(concat("the folder of weights lacks a file that belongs there: ", e.what()));
      return std::nullopt;
    }
  }

  // Whether it is the tokenizer that the initial weights came with.
  bool is_origins(const OpenedTokenizer& own) const {
    if (origin_.empty() || !readers_.recognized(origin_)) return false;
    const auto theirs = tried<OpenedTokenizer>([&] { return readers_.open(origin_); });
    return theirs && tokenizer_identity(*theirs) == tokenizer_identity(own);
  }

  // generation_config.json is made of config.json where the origin has none.
  std::vector<Value*> files_with_ids() {
    std::vector<Value*> files;
    if (rules_.config.is_object()) files.push_back(&rules_.config);
    if (extras_.generation.is_object()) files.push_back(&extras_.generation);
    return files;
  }

  static void set_ids(Value& file, const TokenizerFacts& facts) {
    const std::optional<int32_t> ids[] = {facts.bos, facts.eos ? facts.eos : facts.eod, facts.pad};
    for (size_t i = 0; i < std::size(kIds); ++i)
      if (ids[i] || file.find(kIds[i])) file.set(kIds[i], ids[i] ? Value(int64_t{*ids[i]}) : Value());
  }

  // What ends an answer of the run's data comes before what ended texts already.
  void add_ends(Value& file) const {
    if (source_.end_tokens.empty()) return;
    Value::Array ends;
    const auto add = [&](const Value& id) {
      if (id.is_int() && std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
    };
    for (const int32_t id : source_.end_tokens) add(int64_t{id});
    if (const Value* const before = file.find("eos_token_id")) {
      if (before->is_array())
        for (const Value& id : before->items()) add(id);
      else
        add(*before);
    }
    file.set("eos_token_id", ends.size() == 1 ? ends.front() : Value(std::move(ends)));
  }

  // What the run asks for, else what the model's configuration says: that of the initial weights, or float32.
  void set_dtype() {
    const Value* const wanted = source_.config.find("save_dtype");
    const Value* const said = rules_.config.find("dtype");
    const Value* const name = wanted && !wanted->is_null() ? wanted : said;
    const auto dtype = name && name->is_string() ? dtype_of(name->as_string()) : std::nullopt;
    if (dtype) extras_.dtype = *dtype;
    if (name == wanted && wanted && !dtype)
      throw fail(ErrorCode::config, wanted->where.text(), ": save_dtype is ", wanted->to_json(),
                 "; known are float32, bfloat16 and float16");
  }

  WeightRules& rules_;
  const ExportSource& source_;
  const TokenizerReaders& readers_;
  Log& log_;
  std::string origin_;  // "": none
  HfExtras extras_;
};

}  // namespace

HfExtras export_extras(WeightRules& rules, const ExportSource& source, const TokenizerReaders& readers, Log& log) {
  return Extras(rules, source, readers, log).make();
}

}  // namespace drivetrain
