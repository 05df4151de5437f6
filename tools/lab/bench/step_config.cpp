#include "bench/step_config.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include <drivetrain/model.h>
#include <drivetrain/precision.h>
#include <drivetrain/toolkit/text.h>

#include "config_files/load.h"
#include "config_files/places.h"
#include "device/open_device.h"
#include "plugin/kinds.h"
#include "plugin/registry.h"
#include "shared/commands.h"

namespace drivetrain {
namespace {

// Where the options of a section stand: below "params" if it has them.
Value* section_options(Value& config, const std::string& name) {
  if (!config.is_object()) return nullptr;
  for (auto& member : config.members()) {
    if (member.key != name || !member.value.is_object()) continue;
    for (auto& inner : member.value.members())
      if (inner.key == "params") return &inner.value;
    return &member.value;
  }
  return nullptr;
}

// The names by which models know their sizes: those of Hugging Face's config.json, which a model's options have as
// names or aliases.
struct SizeOption {
  cli::OptionName argument;
  const char* name;
};
constexpr SizeOption kSizes[] = {{"--layers", "num_hidden_layers"},
                                 {"--hidden", "hidden_size"},
                                 {"--heads", "num_attention_heads"},
                                 {"--vocab", "vocab_size"}};
constexpr const char* kMlpSize = "intermediate_size";
constexpr const char* kPositions = "max_position_embeddings";

std::string device_of(const Value& config) {
  const Value* device = config.find("device");
  return device && device->is_string() ? device->as_string() : "cpu";
}

// The plugins that the config's run will see. What is wrong with its places or its device is told when the run is
// planned.
std::unique_ptr<Registry> registry_of(const Value& config, const std::vector<std::string>& plugin_paths) {
  try {
    if (device_of(config) == "cuda") open_device("cuda");  // before a plugin that needs its libraries
  } catch (const Error&) {
  }
  Problems others;
  Value places = config;
  expand_places(places);
  return std::make_unique<Registry>(search_path(read_run_settings(places, "bench", others), plugin_paths));
}

// The model of a config: its option table, and where its options stand.
class ModelOptions {
 public:
  ModelOptions(const Value& config, const Registry& registry) {
    Problems others;  // of the rest of the file, told when the run is planned
    for (const Selection& s :
         select_plugins(config, {{Model::kKind, KindRule::exactly_one}}, registry.known(), device_of(config), others)) {
      id_ = s.kind + "/" + s.name;
      section_ = s.path.substr(0, s.path.find('.'));
      table_ = &registry.options(s.kind, s.name);
    }
  }

  bool found() const { return table_ != nullptr; }  // else the plan of the run says what is wrong with the section
  const std::string& id() const { return id_; }
  const OptionField* find(const std::string& name) const { return table_->find(name); }
  std::string path(const OptionField& field) const { return section_ + "." + field.name; }

  // The value that the config gives under any of the option's names; null if it gives none.
  const Value* value(Value& config, const OptionField& field) const {
    const Value* given = nullptr;
    if (const Value* options = section_options(config, section_))
      for (const std::string& name : names_of(field))
        if (!given) given = options->find(name);
    return given;
  }

  void erase(Value& config, const OptionField& field) const {
    if (Value* options = section_options(config, section_))
      for (const std::string& name : names_of(field)) options->erase(name);
  }

 private:
  static std::vector<std::string> names_of(const OptionField& field) {
    std::vector<std::string> names = field.aliases;
    names.push_back(field.name);
    return names;
  }

  std::string id_, section_;
  const OptionTable* table_ = nullptr;
};

class Shape {
 public:
  Shape(Value& config, const BenchArguments& arguments, Problems& problems)
      : config_(config), arguments_(arguments), problems_(problems) {}

  void model() {
    const auto asked = [&](const SizeOption& size) { return arguments_.has(size.argument); };
    if (!arguments_.has("--seq") && std::none_of(std::begin(kSizes), std::end(kSizes), asked)) return;
    const ModelOptions model(config_, registry());
    if (!model.found()) return;
    for (const SizeOption& size : kSizes)
      if (asked(size)) set_size(model, size);
    if (arguments_.has("--seq")) raise_positions(model, arguments_.whole("--seq"));
  }

  void batch() {
    if (arguments_.has("--batch")) config_.erase("train_batch_size");
    number("--batch", "train_micro_batch_size_per_gpu");
    number("--seq", "dataset.seq_length");
  }

  void run() {
    number("--threads", "threads");
    if (arguments_.has("--device")) set("device=" + arguments_.text("--device"));
    if (arguments_.has("--dtype")) precision(arguments_.text("--dtype"));
  }

  void set(const std::string& argument) { apply_set(config_, argument, ++count_, problems_); }

 private:
  const Registry& registry() {
    if (!registry_) registry_ = registry_of(config_, arguments_.all("--plugin-path"));
    return *registry_;
  }

  void number(cli::OptionName option, const std::string& key) {
    if (arguments_.has(option)) set(concat(key, "=", arguments_.whole(option)));
  }

  void set_size(const ModelOptions& model, const SizeOption& size) {
    const OptionField* field = model.find(size.name);
    if (!field)
      throw fail(ErrorCode::config, "bench step: ", size.argument.text(), " sets \"", size.name, "\", and ", model.id(),
                 " has no such option\n   use --set with the name that it has (drivetrain inspect ", model.id(), ")");
    const OptionField* mlp = model.find(kMlpSize);
    if (size.argument.text() == "--hidden" && mlp) model.erase(config_, *mlp);  // the model's own rule gives it
    model.erase(config_, *field);
    number(size.argument, model.path(*field));
  }

  void raise_positions(const ModelOptions& model, int64_t wanted) {
    const OptionField* field = model.find(kPositions);
    const Value* given = field ? model.value(config_, *field) : nullptr;
    if (!given || !given->is_int() || given->as_int() >= wanted) return;
    model.erase(config_, *field);
    set(concat(model.path(*field), "=", wanted));
  }

  // f32 is a run without a precision; every other type is one that an installed precision answers to.
  void precision(const std::string& dtype) {
    std::vector<std::string> sections{section_of_kind(Precision::kKind)}, types{"f32"};
    const KnownPlugin* chosen = nullptr;
    const std::vector<KnownPlugin> known = registry().known();
    for (const KnownPlugin& plugin : known) {
      if (plugin.kind != Precision::kKind) continue;
      sections.push_back(plugin.section);
      sections.insert(sections.end(), plugin.form.aliases.begin(), plugin.form.aliases.end());
      types.push_back(plugin.name);
      const std::vector<std::string>& others = plugin.type_names;
      if (plugin.name == dtype || std::find(others.begin(), others.end(), dtype) != others.end()) chosen = &plugin;
    }
    std::sort(types.begin() + 1, types.end());
    if (!chosen && dtype != types.front())
      throw fail(ErrorCode::config, "bench step: --dtype wants ", join(types, " or "), ", got \"", dtype, "\"");
    for (const std::string& section : sections) config_.erase(section);
    if (!chosen) return;
    const bool claims = !chosen->section.empty();
    set(claims ? chosen->section + ".enabled=true" : concat(sections.front(), ".type=", chosen->name));
  }

  Value& config_;
  const BenchArguments& arguments_;
  Problems& problems_;
  std::unique_ptr<Registry> registry_;
  int count_ = 0;
};

}  // namespace

const char* default_step_config() {
  return
#include "bench_gpt2_124m_b4_t64.inc"
      ;
}

const char* startup_config() {
  return
#include "bench_startup.inc"
      ;
}

Value bench_step_config(const BenchArguments& arguments, std::string& path, Problems& problems) {
  const bool given = !arguments.plain().empty();
  path = given ? arguments.plain().front() : "configs/bench/gpt2_124m_b4_t64.json";
  Value config = given ? load_config(path, {}, problems) : parse_json(default_step_config(), path);
  Shape shape(config, arguments, problems);
  for (const std::string& argument : arguments.all("--set"))
    shape.set(argument);  // first, so that their numbers are theirs
  shape.run();
  shape.model();
  shape.batch();
  config.set("eval_interval", 0);
  config.set("save_final", false);
  return config;
}

}  // namespace drivetrain
