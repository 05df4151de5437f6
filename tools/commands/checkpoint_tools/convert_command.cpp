// `drivetrain checkpoint convert`: checkpoints of this and other programs from one format into another.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include <drivetrain/toolkit/dtype_name.h>

#include "base/printable.h"
#include "checkpoint_tools/convert.h"
#include "config_files/load.h"
#include "config_files/places.h"
#include "memory/cpu_allocator.h"
#include "plan/prepare_run.h"
#include "plugin_calls/plugin_call.h"
#include "report/facts.h"
#include "shared/commands.h"
#include "train/min_world_size.h"
#include "train/plan_training.h"

namespace drivetrain {
namespace {

// The plugin of a format that is named on the command line: "a-b" is the plugin a_b.
std::string plugin_of(std::string word) {
  std::replace(word.begin(), word.end(), '-', '_');
  return word;
}

RankSetup one_rank() {
  RankSetup setup;
  setup.log = make_console_log(console_settings(0));
  setup.store = make_local_store();
  return setup;
}

// What --config names, or the configuration of the checkpoint's own run; null: neither.
Value config_of(const cli::Arguments& arguments, const OpenedFolder& opened) {
  if (!arguments.has("--config")) {
    const Value* const own = opened.state->facts().find("config");
    return own ? *own : Value();
  }
  Problems problems;
  Value config = load_config(arguments.text("--config"), arguments.all("--set"), problems);
  expand_places(config);
  problems.throw_if_any();
  return config;
}

// The section "model" of a config, of the checkpoint's own run, or of a Hugging Face folder.
Value model_section(const cli::Arguments& arguments, const OpenedFolder& opened, const Value& config) {
  const std::string from = std::filesystem::absolute(arguments.plain()[0]).string();
  Value section = Value::object();
  const Value* const model = config.find("model");
  if (arguments.has("--config")) {
    if (model) return *model;
    throw fail(ErrorCode::config, arguments.text("--config"), ": has no section \"model\"");
  }
  if (model) {
    section = *model;
    Value* params = nullptr;
    for (Value::Member& member : section.members())
      if (member.key == "params") params = &member.value;
    const Value* folder = params ? params->find("from") : nullptr;
    std::error_code unknown;  // the sizes stand beside it
    if (folder && folder->is_string() && !std::filesystem::is_directory(folder->as_string(), unknown))
      params->erase("from");
    return section;
  }
  std::error_code unknown;
  if (std::filesystem::exists(from + "/config.json", unknown)) {
    section.set("from", from);
    return section;
  }
  throw fail(ErrorCode::config, arguments.plain()[0], ": ", opened.description,
             " does not tell the sizes of the model\n   give a config whose section \"model\" does: --config CONFIG");
}

// What `final/` of the run that saved the checkpoint has, by the checkpoint's own word: the initial weights' folder, or
// FROM itself, and what ends an answer. Weights of other programs keep the type that they have there.
ExportSource export_source(const cli::Arguments& arguments, const OpenedFolder& opened, const Value& config,
                           const PreparedRun& run) {
  const std::string from = plugin_call({run.plan.id_of(Model::kKind), "weights_folder"},
                                       [&] { return run.plugins.model->weights_folder(); });
  ExportSource source{config.is_object() ? config : Value::object(), from, {}};
  if (const Value* const saved_by = opened.state->facts().find("run"))
    source.end_tokens = listed_tokens(*saved_by, "end_tokens").value_or(std::vector<int32_t>{});
  if (arguments.has("--save-dtype")) source.config.set("save_dtype", arguments.text("--save-dtype"));
  const Value* const asked = source.config.find("save_dtype");
  if (opened.naming == "hf" && source.origin.empty()) source.origin = arguments.plain()[0];
  if (opened.naming == kNativeNaming || !source.origin.empty() || (asked && !asked->is_null())) return source;
  for (const StoredTensor& t : opened.state->tensors())
    if (t.name.starts_with("model/")) {
      if (dtype_of(dtype_name(t.dtype))) source.config.set("save_dtype", dtype_name(t.dtype));
      break;
    }
  return source;
}

// The strategies of a config, whose layers may have added to the model. Sections of other kinds are not looked at:
// they may be for more ranks than one, or name plugins that are not here.
std::vector<ChosenPlugin> strategies_of(const Value& config, const Registry& registry) {
  Problems of_other_kinds;
  std::vector<ChosenPlugin> chosen = choose_plugins(config, registry, "cpu", of_other_kinds, Purpose::generate);
  std::erase_if(chosen, [](const ChosenPlugin& plugin) { return plugin.kind() != Strategy::kKind; });
  return chosen;
}

// `run`: the config of the run whose strategies made layers of the model; null: there is none.
std::unique_ptr<PreparedRun> plan_model(const Value& section, const Value& run, const Registry& registry) {
  Problems problems;
  Value config = Value::object();
  config.set("model", section);
  config.set("train_steps", 1);  // every run's settings want some
  const RunSettings settings = read_run_settings(config, "checkpoint convert", problems);
  std::vector<ChosenPlugin> chosen = choose_plugins(config, registry, "cpu", problems, Purpose::generate);
  if (run.is_object()) {
    std::erase_if(chosen, [](const ChosenPlugin& plugin) { return plugin.kind() == Strategy::kKind; });
    for (ChosenPlugin& strategy : strategies_of(run, registry)) chosen.push_back(std::move(strategy));
  }
  problems.throw_if_any();
  return prepare_run(settings, std::move(chosen), registry, one_rank(), Purpose::generate);
}

// The run of --config as `train` would plan it, on as many ranks as it needs, in the folder `to`.
std::unique_ptr<PreparedRun> plan_training_run(const cli::Arguments& arguments, const std::string& to,
                                               const Registry& registry) {
  const std::string path = arguments.text("--config");
  Problems problems;
  Value config = load_config(path, arguments.all("--set"), problems);
  expand_places(config);
  config.set("output_dir", to);
  const RunSettings settings = read_run_settings(config, path, problems);
  std::vector<ChosenPlugin> chosen = choose_plugins(config, registry, settings.device, problems);
  problems.throw_if_any();
  RankSetup setup = one_rank();
  int64_t ranks = min_world_size(settings, chosen, registry, setup);
  if (settings.train_batch_size && settings.micro_batch_size && settings.accumulation)
    ranks *= std::max<int64_t>(1, *settings.train_batch_size / (*settings.micro_batch_size * *settings.accumulation));
  setup.environment.world_size = setup.environment.local_size = ranks;
  return plan_training(settings, std::move(chosen), registry, setup);
}

void show_notes_of(const OpenedFolder& opened, const std::string& from, Log& log) {
  log.info(concat(from, ": ", opened.description));
  if (const Value* notes = opened.state->facts().find("notes"))
    for (const Value& note : notes->items()) log.warning(note.as_string());
}

// What --config says, with every default. A batch size that follows from the others and the number of ranks stays open,
// so that the run may go on with other numbers of ranks than this one.
Value on_any_ranks(Value config, const RunSettings& settings) {
  if (!settings.train_batch_size) config.erase("train_batch_size");
  if (!settings.micro_batch_size) config.erase("train_micro_batch_size_per_gpu");
  if (!settings.accumulation) config.erase("gradient_accumulation_steps");
  return config;
}

void convert_to_run(const cli::Arguments& arguments, const Registry& registry) {
  const std::string &from = arguments.plain()[0], to = std::filesystem::absolute(arguments.plain()[1]).string();
  if (!arguments.has("--config"))
    throw fail(ErrorCode::config, "checkpoint convert --to native: --config CONFIG is missing, the config of the run ",
               "that shall go on from the checkpoint");
  const auto run = plan_training_run(arguments, to, registry);
  const OpenedFolder opened = run->folders->open(from, arguments.text("--tag"));
  show_notes_of(opened, from, *run->log);
  const Value config = resolved_value(*run, registry);
  write_run_folder(to, *native_state(opened, *run, from), *run, config, on_any_ranks(config, run->plan.settings));
  const int64_t ranks = run->plan.run.world_size;
  const std::string start = ranks == 1 ? "drivetrain train " : concat("drivetrain launch -n ", ranks, " ");
  std::cout << printable(concat(to, ": go on with `", start, to, "/resolved.json`\n"));
}

void convert_model(const cli::Arguments& arguments, const Registry& registry) {
  const std::string &from = arguments.plain()[0], &to = arguments.plain()[1], format = arguments.text("--to");
  // Readers need services, which a planned run has; the model is known only when the folder is open.
  const RankSetup setup = one_rank();
  const Services services{*setup.log, *setup.store};
  const FolderReaders readers(registry, services);
  const OpenedFolder opened = readers.open(from, arguments.text("--tag"));
  show_notes_of(opened, from, *setup.log);
  const Value config = config_of(arguments, opened);
  const auto run = plan_model(model_section(arguments, opened, config), config, registry);
  const auto state = native_state(opened, *run, from);
  if (format == "hf") {
    write_hf(to, *state, *run, export_source(arguments, opened, config, *run));
  } else {
    const auto writer = readers.format(plugin_of(format));
    if (!writer->writes())
      throw fail(ErrorCode::config, "checkpoint convert: the format ", format,
                 " is recognised and not written in this version");
    write_format(to, *writer, "hf", state, *run);
  }
  std::cout << printable(concat(to, ": written as ", format, "\n"));
}

}  // namespace

int convert_command(const cli::Arguments& arguments) {
  for (const std::string& folder : arguments.plain())
    if (folder.empty()) throw fail(ErrorCode::config, "checkpoint convert: the name of a folder is empty");
  if (arguments.has("--set") && !arguments.has("--config"))
    throw fail(ErrorCode::config, "checkpoint convert: --set changes the config that --config CONFIG names, and there ",
               "is none");
  if (arguments.has("--save-dtype") && arguments.text("--to") != "hf")
    throw fail(ErrorCode::config, "checkpoint convert: --save-dtype is for --to hf; --to ", arguments.text("--to"),
               " writes the types that FROM has");
  install_cpu_allocator();
  const Registry registry(search_path({}, arguments.all("--plugin-path")));
  if (arguments.text("--to") == "native")
    convert_to_run(arguments, registry);
  else
    convert_model(arguments, registry);
  return 0;
}

}  // namespace drivetrain
