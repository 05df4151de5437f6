#include "generate/model_source.h"

#include <algorithm>
#include <filesystem>

#include <drivetrain/error.h>
#include <drivetrain/model.h>
#include <drivetrain/toolkit/files/not_a_model.h>

#include "generate/text_tokens.h"

namespace drivetrain {
namespace {

namespace fs = std::filesystem;

// A Hugging Face folder; empty: there is none.
std::string weights_folder(const std::string& folder) {
  std::error_code unknown;
  for (const fs::path& path : {fs::path(folder), fs::path(folder) / "final"})
    if (fs::exists(path / "config.json", unknown)) return fs::absolute(path).string();
  return {};
}

// Of a run that has not written final weights. Where its checkpoints are, its store knows.
ModelSource newest_checkpoint(const std::string& folder, const Value& recorded) {
  std::error_code unknown;
  const fs::path checkpoints = fs::path(folder) / "checkpoints";
  if (const std::string other = held_instead_of_model(folder); recorded.is_null() && !other.empty())
    throw fail(ErrorCode::config, folder, " ", other);
  const fs::path final = fs::path(folder) / "final";
  if (!recorded.is_null() && !fs::is_directory(checkpoints, unknown) && fs::is_directory(final, unknown))
    return {recorded, "", recorded};  // a strategy wrote its part alone
  if (recorded.is_null())
    throw fail(ErrorCode::config, folder, " holds no model: neither ", folder, "/config.json nor ", folder,
               "/final/config.json is there. Give a run folder of a finished run or a Hugging Face folder");
  return {recorded, fs::absolute(folder).string(), recorded};
}

bool is_installed(const Registry& registry, const std::string& model) {
  const std::vector<std::string> names = registry.names(Model::kKind);
  return std::find(names.begin(), names.end(), model) != names.end();
}

// A model that reads folders is told where its own is: whatever it says of the shape stands there, too.
bool reads_folders(const Registry& registry, const std::string& model) {
  return registry.options(Model::kKind, model).find("from") != nullptr;
}

Value from_folder(const std::string& weights) { return Value::Object{{"from", weights}}; }

// {"type", "params"} of resolved.json; null: the folder is no run's, or the run was older.
Value recorded_section(const std::string& folder) {
  const Value config = run_config(folder);
  const Value* const model = config.find("model");
  const Value* const type = model ? model->find("type") : nullptr;
  return type && type->is_string() ? *model : Value();
}

// The keys of config.json that are options of the plugin.
Value options_in(const Value& config, const OptionTable& table) {
  Value params = Value::object();
  for (const Value::Member& member : config.members())
    if (table.find(member.key)) params.set(member.key, member.value);
  return params;
}

Value section_of(const std::string& type, Value params) {
  return Value::Object{{"type", type}, {"params", std::move(params)}};
}

// What is wrong with resolved.json; empty: nothing, or there is none.
std::string damage_of_config(const std::string& folder) {
  try {
    if (std::error_code unknown; fs::is_directory(fs::path(folder) / "resolved.json", unknown)) return "it is a folder";
    const Value config = run_config(folder);
    if (config.is_null()) return "";
    if (!config.is_object()) return concat("wanted an object, found ", config.type_name());
    return config.find("model") ? "" : "it names no model";
  } catch (const Error& e) {
    return e.what();
  }
}

// A run's final weights are whole in its checkpoints, too.
void check_final(const std::string& folder) {
  const fs::path config = fs::path(folder) / "final/config.json";
  std::error_code unknown;
  if (fs::exists(fs::path(folder) / "config.json", unknown) || !fs::exists(config, unknown)) return;
  try {
    if (const Value value = read_json_file(config.string()); !value.is_object())
      throw fail(ErrorCode::config, value.where.text(), "  wanted an object of settings of a model, found ",
                 value.type_name());
  } catch (const Error& e) {
    throw fail(e.code(), e.what(),
               "\n   a checkpoint of the run, if it kept one, gives all of it anew: drivetrain checkpoint convert ",
               folder, " NEW --to hf");
  }
}

}  // namespace

std::string readable_folder(const std::string& folder, Log& log) {
  const std::string damage = damage_of_config(folder);
  if (damage.empty()) return check_final(folder), folder;
  const std::string file = (fs::path(folder) / "resolved.json").string(), weights = weights_folder(folder);
  const std::string remedy = concat("\n   write it anew: drivetrain config resolve CONFIG > ", file);
  if (weights.empty())
    throw fail(ErrorCode::config, file, " is damaged (", damage, "), and ", folder, "/final holds no whole model",
               remedy);
  if (std::error_code unknown; fs::equivalent(weights, folder, unknown))
    throw fail(ErrorCode::config, file, " is damaged (", damage, ")", remedy, ", or take it out of the folder");
  log.warning(concat(file, " is damaged (", damage, "): ", weights, " is taken alone, without what the run says of ",
                     "strategies, attention and tokenizer", remedy));
  return weights;
}

ModelSource model_source(const std::string& folder, const Registry& registry) {
  const std::string weights = weights_folder(folder);
  const Value recorded = recorded_section(folder);
  if (weights.empty()) return newest_checkpoint(folder, recorded);
  if (!recorded.is_null()) {
    const std::string& type = recorded.find("type")->as_string();
    if (reads_folders(registry, type)) return {section_of(type, from_folder(weights)), "", recorded, true};
    return {recorded, weights, recorded, true};
  }
  const Value config = read_json_file((fs::path(weights) / "config.json").string());
  const Value* const type = config.find("model_type");
  if (!type || !type->is_string() || !is_installed(registry, type->as_string()) ||
      reads_folders(registry, type->as_string()))
    return {from_folder(weights), ""};
  return {section_of(type->as_string(), options_in(config, registry.options(Model::kKind, type->as_string()))),
          weights};
}

}  // namespace drivetrain
