#include "targets.h"

#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "pattern.h"

namespace drivetrain::lora {
namespace {

std::string without_end(const std::string& name) { return name.substr(0, name.rfind('.')); }
std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

std::string in_quotes(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back("\"" + name + "\"");
  return join(quoted);
}

// The last parts of names are what people write.
std::vector<std::string> ends_of(const std::vector<std::string>& paths) {
  std::vector<std::string> ends;
  for (const std::string& path : paths) ends.push_back(last_part(path));
  return ends;
}

std::string not_there(const char* key, const std::string& name, const std::vector<std::string>& paths) {
  return concat(key, ": no module of the model is named \"", name, "\"; the nearest names are ",
                in_quotes(nearest_names(last_part(name), ends_of(paths))));
}

}  // namespace

std::string module_path(const WeightRules& rules, const WeightPart& part) {
  return without_end((part.prefixed ? rules.prefix : "") + part.name);
}

Targets::Targets(const Options& options, const WeightRules& rules) : options_(options), rules_(rules) {
  for (const WeightRule& rule : rules_.rules) {
    by_param_[rule.param] = &rule;
    for (const WeightPart& part : rule.parts)
      if (part.name.ends_with(".weight")) paths_.push_back(module_path(rules_, part));
  }
  if (options_.targets.is_null()) choose_default();
  all_linear_ = options_.targets.is_string() && options_.targets.as_string() == "all-linear";
  check_names_match();
}

// What PEFT adapts where nothing is said.
void Targets::choose_default() {
  const auto any = [&](const char* end) {
    return std::any_of(paths_.begin(), paths_.end(), [&](const std::string& path) { return ends_in(path, end); });
  };
  if (any("q_proj") && any("v_proj"))
    options_.targets = Value(Value::Array{Value("q_proj"), Value("v_proj")});
  else if (any("c_attn"))
    options_.targets = Value(Value::Array{Value("c_attn")});
  else
    add_problem(concat(kTargets,
                       ": this model has neither q_proj and v_proj nor c_attn, which are adapted where nothing is "
                       "said; name modules, or say \"all-linear\""));
}

void Targets::add_problem(const std::string& text) {
  if (std::find(problems_.begin(), problems_.end(), text) == problems_.end()) problems_.push_back(text);
}

void Targets::check_names_match() {
  if (by_param_.empty()) return;
  const auto check = [&](const char* key, const std::string& name, bool matrices) {
    if (std::any_of(paths_.begin(), paths_.end(), [&](const std::string& path) { return ends_in(path, name); })) return;
    for (const auto& [foreign, ours] : rules_.tied)
      if (!matrices && ends_in(without_end(foreign), name))
        return add_problem(concat(key, ": \"", name, "\" is tied to ", ours, "; name the embedding's module"));
    add_problem(not_there(key, name, paths_));
  };
  if (options_.targets.is_array())
    for (const Value& name : options_.targets.items()) check(kTargets, name.as_string(), true);
  else if (options_.targets.is_string() && !all_linear_ &&
           std::none_of(paths_.begin(), paths_.end(),
                        [&](const std::string& path) { return names_module(options_.targets, path); }))
    add_problem(concat(kTargets, ": no module of the model matches the regular expression \"",
                       options_.targets.as_string(), "\", which has to match whole names, such as \"", paths_.front(),
                       "\""));
  for (const std::string& name : *options_.modules_to_save) check("modules_to_save", name, false);
  for (const auto* patterns : {&options_.rank_pattern, &options_.alpha_pattern})
    for (const auto& [name, value] : patterns->members()) {
      Value one = Value::object();
      one.set(name, value);
      if (std::none_of(paths_.begin(), paths_.end(), [&](const auto& path) { return first_match(one, path); }))
        add_problem(not_there(patterns == &options_.rank_pattern ? "rank_pattern" : "alpha_pattern", name, paths_));
    }
}

bool Targets::wanted(const std::string& path) const {
  if (!all_linear_ && !names_module(options_.targets, path)) return false;
  if (names_module(options_.exclude_modules, path)) return false;
  for (const std::string& name : *options_.modules_to_save)
    if (ends_in(path, name)) return false;
  const Value& layers = options_.layers_to_transform;
  if (layers.is_null()) return true;
  const Value number(layer_number(path));
  return layers.is_array() ? std::find(layers.items().begin(), layers.items().end(), number) != layers.items().end()
                           : layers.as_int() == number.as_int();
}

std::vector<Module> Targets::modules_of(const std::string& layer, int64_t out) const {
  if (by_param_.empty()) return {{layer, 0, out}};
  const auto rule = by_param_.find(layer + ".weight");
  if (rule == by_param_.end()) return {};
  std::vector<Module> modules;
  int64_t first = 0;
  for (const WeightPart& part : rule->second->parts) {
    int64_t holders = 0;
    for (const WeightRule& other : rules_.rules)
      holders += std::count_if(other.parts.begin(), other.parts.end(),
                               [&](const WeightPart& p) { return p.name == part.name && p.prefixed == part.prefixed; });
    modules.push_back({module_path(rules_, part), first, part.rows, holders > 1, rule->second->transposed});
    first += part.rows;
  }
  return modules;
}

std::vector<Wish> Targets::of_linear(const std::string& layer, int64_t out, int64_t in) {
  std::vector<Wish> wishes;
  for (const Module& module : modules_of(layer, out)) {
    if (options_.targets.is_array())
      for (const Value& name : options_.targets.items())
        if (ends_in(module.path, name.as_string())) found_[name.as_string()].insert(module.path);
    if (!wanted(module.path)) continue;
    if (module.shared) {
      if (told_.insert(last_part(module.path)).second)
        add_problem(concat(module.path, " lies in several parameters of the model, and its adapter would not; ",
                           options_.targets.is_array()
                               ? concat("leave it out of ", kTargets)
                               : concat("name it in exclude_modules: [\"", last_part(module.path), "\"]")));
      continue;
    }
    Wish wish{module, *options_.rank, *options_.alpha, 0};
    if (const Value* rank = first_match(options_.rank_pattern, module.path)) wish.rank = rank->as_int();
    if (const Value* alpha = first_match(options_.alpha_pattern, module.path)) wish.alpha = alpha->as_double();
    if (wish.rank > std::min(module.rows, in)) {
      const bool by_pattern = first_match(options_.rank_pattern, module.path);
      if (told_.insert(concat("rank ", wish.rank)).second)
        add_problem(concat(by_pattern ? "rank_pattern: " : "r (rank): ", wish.rank, " is larger than ", module.path,
                           " of [", module.rows, ", ", in, "] has room for; use at most ", std::min(module.rows, in)));
      continue;
    }
    wish.scale = scale_of(wish.alpha, wish.rank, *options_.rslora);
    adapted_.push_back(module.path);
    wishes.push_back(std::move(wish));
  }
  return wishes;
}

bool Targets::trained_whole(const std::string& param) {
  const auto rule = by_param_.find(param);
  std::vector<std::string> paths;
  if (rule != by_param_.end())
    for (const WeightPart& part : rule->second->parts) paths.push_back(module_path(rules_, part));
  else if (by_param_.empty())
    paths.push_back(without_end(param));
  const auto named = [&](const std::string& path) {
    return std::any_of(options_.modules_to_save->begin(), options_.modules_to_save->end(),
                       [&](const std::string& name) { return ends_in(path, name); });
  };
  const auto count = std::count_if(paths.begin(), paths.end(), named);
  if (count == 0) return false;
  if (count < std::ssize(paths))
    add_problem(concat("modules_to_save: ", param, " holds ", join(paths),
                       " in one matrix, which is trained whole or not at all; name all of them"));
  return true;
}

void Targets::check_all_found() {
  const bool fits = problems_.empty();
  // An adapter that is gone on with may have words without a module: its tensors say what is adapted.
  if (options_.from.empty()) check_words_choose();
  if (!fits) return;
  if (options_.targets.is_array())
    for (const Value& name : options_.targets.items())
      if (!found_.contains(name.as_string()))
        add_problem(concat(kTargets, ": \"", name.as_string(),
                           "\" is no linear layer of a block: adapters of embeddings, norms and the output layer are "
                           "not in this version; train it whole with modules_to_save"));
  if (adapted_.empty() && problems_.empty())
    add_problem(concat("no linear layer is left to adapt, and nothing would be trained; see ", kTargets,
                       ", exclude_modules and layers_to_transform"));
}

// Words that name nothing are slips: the run would train other adapters than the user believes.
void Targets::check_words_choose() {
  if (by_param_.empty()) return;
  const bool fits = problems_.empty();
  const auto any_named = [&](const Value& names) {
    return std::any_of(paths_.begin(), paths_.end(), [&](const auto& path) { return names_module(names, path); });
  };
  const Value& excluded = options_.exclude_modules;
  if (excluded.is_array()) {
    for (const Value& name : excluded.items())
      if (!any_named(Value(Value::Array{name}))) add_problem(not_there("exclude_modules", name.as_string(), paths_));
  } else if (!excluded.is_null() && !any_named(excluded)) {
    add_problem(concat("exclude_modules: no module of the model matches the regular expression \"",
                       excluded.as_string(), "\", which has to match whole names, such as \"", paths_.front(), "\""));
  }
  int64_t last = -1;
  for (const std::string& path : paths_) last = std::max(last, layer_number(path));
  const Value& layers = options_.layers_to_transform;
  for (const Value& layer : layers.is_array() ? layers.items() : Value::Array{layers})
    if (!layer.is_null() && (layer.as_int() < 0 || layer.as_int() > last))
      add_problem(concat("layers_to_transform: there is no layer ", layer.as_int(), "; the model's are 0 to ", last));
  if (!fits) return;
  for (const auto* patterns : {&options_.rank_pattern, &options_.alpha_pattern})
    for (const auto& [name, value] : patterns->members()) {
      const Value one = Value::Object{{name, value}};
      if (std::none_of(adapted_.begin(), adapted_.end(), [&](const auto& path) { return first_match(one, path); }))
        add_problem(concat(patterns == &options_.rank_pattern ? "rank_pattern" : "alpha_pattern", ": \"", name,
                           "\" has no adapter; name it in ", kTargets, ", or leave the entry out"));
    }
}

std::vector<WeightRule> Targets::whole_rules() {
  std::vector<WeightRule> rules;
  for (const WeightRule& rule : rules_.rules) {
    if (!trained_whole(rule.param)) continue;
    WeightRule own = rule;
    for (WeightPart& part : own.parts)
      part.name = (part.prefixed ? rules_.prefix : "") + part.name, part.prefixed = true;
    rules.push_back(std::move(own));
  }
  return rules;
}

Value Targets::written_targets() const {
  if (!all_linear_) return options_.targets;
  std::vector<std::string> names = adapted_;
  std::sort(names.begin(), names.end());
  return OptionType<std::vector<std::string>>::to(names);
}

}  // namespace drivetrain::lora
