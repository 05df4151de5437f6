// `drivetrain config explain KEY [CONFIG]`: what a key means here and in DeepSpeed, its default and range, and with a
// config where its value comes from and what it does in that run.
#include <algorithm>
#include <iostream>
#include <set>

#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "base/suggest.h"
#include "base/value_error.h"
#include "config/known_sections.h"
#include "config/section_words.h"
#include "config_tools/config_commands.h"
#include "config_tools/deepspeed_keys.h"
#include "plugin/kinds.h"
#include "report/facts.h"
#include "report/inspect.h"
#include "train/checked_config.h"

namespace drivetrain {
namespace {

// One meaning of the key that was asked for.
struct Explained {
  std::string path;   // "zero_optimization.stage"
  std::string owner;  // "data_parallel/zero", "the run"
  Value facts;        // of the option, as `inspect --json` has them; null for keys that no table has
  std::string told;   // what is said of a key that no table has
};

std::string last_of(const std::string& path) { return path.substr(path.rfind('.') + 1); }

bool is_asked(const std::string& key, const std::string& path) {
  return key == path || (key.find('.') == std::string::npos && last_of(path) == key);
}

class Explainer {
 public:
  Explainer(const std::string& key, const Registry& registry) : key_(without_params(key)), registry_(registry) {}

  std::vector<Explained> find() {
    add_table(run_settings_table(), "", "the run");
    for (const KnownPlugin& p : registry_.known()) add_plugin(p);
    for (const auto& [key, fact] : known_sections().keys) add_known(key, fact);
    return found_;
  }

  // "optimizer.params.lr" may be asked for as "optimizer.lr".
  static std::string without_params(const std::string& path) {
    const size_t at = path.find(".params.");
    return at == std::string::npos ? path : path.substr(0, at) + path.substr(at + 7);
  }

  const std::vector<std::string>& all_paths() const { return paths_; }

 private:
  void add_plugin(const KnownPlugin& p) {
    const std::string section = p.section.empty() ? section_of_kind(p.kind) : p.section;
    try {
      add_table(registry_.options(p.kind, p.name), section + ".", concat(p.kind, "/", p.name));
      add_place(p, section + ".");
    } catch (const Error&) {  // a refused library: `inspect` says why
    }
  }

  // The word of the section that says where the plugin stands.
  void add_place(const KnownPlugin& p, const std::string& prefix) {
    for (const KindRule& rule : kind_rules()) {
      if (rule.kind != p.kind || rule.outside_of.empty()) continue;
      Value place = Value::Object{{"name", kOutsideOf}, {"type", "string"}, {"help", kOutsideOfHelp}};
      place.set("default", Value());
      place.set("choices", Value(Value::Array(rule.outside_of.begin(), rule.outside_of.end())));
      add_options(Value(Value::Array{place}), prefix, concat(p.kind, "/", p.name));
    }
  }

  void add_table(const OptionTable& table, const std::string& prefix, const std::string& owner) {
    add_options(options_of_table(table), prefix, owner);
    for (const OptionRedirect& r : table.redirects()) {
      paths_.push_back(prefix + r.name);
      if (is_asked(key_, prefix + r.name)) found_.push_back({prefix + r.name, owner, {}, r.message});
    }
  }

  void add_options(const Value& options, const std::string& prefix, const std::string& owner) {
    for (const Value& option : options.items()) {
      const std::string path = prefix + option.find("name")->as_string();
      paths_.push_back(path);
      std::vector<std::string> names = {path};
      if (const Value* aliases = option.find("aliases"))
        for (const Value& alias : aliases->items()) names.push_back(prefix + alias.as_string());
      if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return is_asked(key_, name); }))
        found_.push_back({path, owner, option, ""});
      if (const Value* group = option.find("options")) add_options(*group, path + ".", owner);
    }
  }

  void add_known(const std::string& path, const KeyFact& fact) {
    paths_.push_back(path);
    const char* const verdicts[] = {"", "accepted, without effect here: ", "refused: "};
    if (is_asked(key_, path) && fact.verdict != KeyFact::none)
      found_.push_back({path, "no plugin", {}, verdicts[fact.verdict] + fact.reason});
    if (fact.keys)
      for (const auto& [name, own] : *fact.keys) add_known(concat(path, ".", name), own);
  }

  const std::string key_;
  const Registry& registry_;
  std::vector<Explained> found_;
  std::vector<std::string> paths_;
};

// DeepSpeed's own path of a key of ours: sections of optimizer and scheduler have params.
std::string deepspeed_meaning(const std::string& path) {
  const auto& keys = deepspeed_keys();
  if (const auto found = keys.find(path); found != keys.end()) return found->second;
  const size_t dot = path.find('.');
  const auto typed =
      dot == std::string::npos ? keys.end() : keys.find(path.substr(0, dot) + ".params" + path.substr(dot));
  return typed == keys.end() ? "" : typed->second;
}

// The value of a path in a file with either spelling of sections.
const Value* value_at(const Value& config, const std::string& path) {
  const size_t dot = path.find('.');
  const Value* const part = config.find(path.substr(0, dot));
  if (!part || dot == std::string::npos) return part;
  const std::string rest = path.substr(dot + 1);
  if (const Value* params = part->find("params"))
    if (const Value* value = value_at(*params, rest)) return value;
  return value_at(*part, rest);
}

bool is_used(const Explained& key, const CheckedConfig& checked) {
  if (!checked.run || key.owner == "the run" || key.owner == "no plugin") return true;
  for (const PlannedPlugin& plugin : checked.run->plan.plugins)
    if (plugin.enabled && plugin.id() == key.owner) return true;
  return false;
}

// Which value the run has, where it comes from, and what a run would say of it.
Value in_config(const Explained& key, const CheckedConfig& checked) {
  Value facts = Value::object();
  facts.set("file", checked.path);
  for (const AutoValue& settled : checked.problems.resolved())
    if (Explainer::without_params(settled.key) == key.path) {
      facts.set("value", settled.value), facts.set("from", settled.rule);
    }
  if (const Value* given = value_at(checked.config, key.path)) {
    if (!facts.find("value")) facts.set("value", given->to_json());
    if (!facts.find("from")) facts.set("from", given->where.text());
  } else if (checked.run) {
    const Value resolved = resolved_value(*checked.run, *checked.registry);
    const bool chosen = is_used(key, checked);
    const Value* value = value_at(resolved, key.path);
    // Sections of kinds with any number stand in a list there.
    if (!value && key.facts.is_object()) value = key.facts.find("default");
    if (!facts.find("value")) facts.set("value", value && chosen ? value->to_json() : "none");
    if (!facts.find("from"))
      facts.set("from", value && chosen ? "the default" : concat("the run does not use ", key.owner));
  }
  Value said = Value::array();
  for (const std::string& note : notes_of(checked))
    if (note.find(last_of(key.path)) != std::string::npos) said.items().push_back(note);
  facts.set("notes", std::move(said));
  if (!checked.refusal.empty()) facts.set("refused", checked.refusal);
  return facts;
}

// Of several plugins with the key, those that the run uses; all, where it uses none.
std::vector<Explained> used_by(const std::vector<Explained>& found, const CheckedConfig* checked) {
  std::vector<Explained> used;
  for (const Explained& one : found)
    if (!checked || is_used(one, *checked)) used.push_back(one);
  return used.empty() ? found : used;
}

Value explained_value(const Explained& key, const CheckedConfig* checked) {
  Value value = Value::object();
  value.set("key", key.path), value.set("owner", key.owner);
  if (key.facts.is_object())
    for (const Value::Member& m : key.facts.members())
      if (m.key != "name" && m.key != "options") value.set(m.key, m.value);
  if (!key.told.empty()) value.set("here", key.told);
  if (const std::string theirs = deepspeed_meaning(key.path); !theirs.empty()) value.set("in_deepspeed", theirs);
  if (checked) value.set("in_config", in_config(key, *checked));
  return value;
}

std::string range_text(const Value& v) {
  std::vector<std::string> parts;
  const auto text = [&](const char* key) {
    const std::string json = v.find(key)->to_json();
    return json.ends_with(".0") ? json.substr(0, json.size() - 2) : json;
  };
  if (v.find("minimum")) parts.push_back("at least " + text("minimum"));
  if (v.find("maximum")) parts.push_back("at most " + text("maximum"));
  if (v.find("length")) parts.push_back(text("length") + " of them");
  if (v.find("choices")) parts.push_back("one of " + text("choices"));
  return join(parts);
}

std::string explained_text(const Value& v) {
  const auto text = [&](const char* key) { return v.find(key) ? v.find(key)->as_string() : std::string(); };
  std::string out = concat(text("key"), ", of ", text("owner"), "\n");
  const auto row = [&](const char* name, const std::string& what) {
    if (!what.empty()) out += concat("   ", name, std::string(11 - std::string(name).size(), ' '), what, "\n");
  };
  row("meaning", text("help"));
  row("here", text("here"));
  row("type", text("type"));
  row("default", v.find("default") ? v.find("default")->to_json() : v.find("required") ? "none: it is required" : "");
  row("range", range_text(v));
  row("\"auto\"", text("auto"));
  if (const Value* aliases = v.find("aliases")) row("also", aliases->to_json());
  row("elsewhere", text("in_deepspeed").empty() ? "" : "in DeepSpeed: " + text("in_deepspeed"));
  const Value* const here = v.find("in_config");
  if (!here) return out;
  row("value", here->find("value") ? here->find("value")->as_string() : "");
  row("from", here->find("from") ? here->find("from")->as_string() : "");
  for (const Value& note : here->find("notes")->items()) row("note", note.as_string());
  if (const Value* refused = here->find("refused")) row("refused", refused->as_string());
  return out;
}

Error unknown_key(const std::string& key, std::vector<std::string> paths) {
  std::vector<std::string> names;
  for (const std::string& path : paths) names.push_back(key.find('.') == std::string::npos ? last_of(path) : path);
  const std::string near = nearest(key, names);
  return fail(
      ErrorCode::config, "no key ", shown(key), " is known",
      near.empty() ? "" : concat("\n   did you mean ", near, "?"),
      "\n   write a name (\"stage\") or a path (\"zero_optimization.stage\"); `drivetrain inspect KIND/NAME` lists "
      "the options of a plugin");
}

}  // namespace

int explain_command(const cli::Arguments& arguments) {
  const std::string& key = arguments.plain().front();
  std::optional<CheckedConfig> checked;
  if (arguments.plain().size() > 1) checked = check_config(config_request(arguments.plain()[1], arguments));
  std::unique_ptr<Registry> installed;
  if (!checked || !checked->registry)
    installed = std::make_unique<Registry>(search_path(RunSettings(), arguments.all("--plugin-path")));
  Explainer explainer(key, installed ? *installed : *checked->registry);
  const std::vector<Explained> found = explainer.find();
  if (found.empty()) throw unknown_key(key, explainer.all_paths());
  Value list = Value::array();
  for (const Explained& one : used_by(found, checked ? &*checked : nullptr))
    list.items().push_back(explained_value(one, checked ? &*checked : nullptr));
  if (arguments.has("--json")) {
    std::cout << printable_json(list.to_json(2)) << "\n";
    return 0;
  }
  for (const Value& one : list.items()) std::cout << printable(explained_text(one));
  return 0;
}

}  // namespace drivetrain
