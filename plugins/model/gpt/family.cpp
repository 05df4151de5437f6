#include "family.h"

#include <algorithm>
#include <cmath>

#include <drivetrain/error.h>

namespace drivetrain::gpt {
namespace {

Error wrong(const std::string& family, const std::string& what) {
  return fail(ErrorCode::config, "model/gpt: family ", family, ": ", what,
              "\n   plugins/model/gpt/README.md describes its form");
}

// Members of `more` replace or add to those of `base`; objects are merged, null takes away.
Value merged(const Value& base, const Value& more) {
  Value result = base;
  for (const Value::Member& member : more.members()) {
    const Value* const there = result.find(member.key);
    if (member.value.is_null())
      result.erase(member.key);
    else if (there && there->is_object() && member.value.is_object() && !member.value.find("sets") &&
             !member.value.find("only") && !member.value.find("no_effect") && !member.value.find("reads"))
      result.set(member.key, merged(*there, member.value));
    else
      result.set(member.key, member.value);
  }
  return result;
}

// Reads the members of one object, each once, and refuses what is left.
class Members {
 public:
  Members(const Value& value, std::string family, std::string where)
      : value_(value), family_(std::move(family)), where_(std::move(where)) {
    if (!value.is_object()) throw wrong(family_, concat(where_, " is ", value.to_json(), "; an object was wanted"));
  }
  const Value* take(const char* name) {
    taken_.push_back(name);
    return value_.find(name);
  }
  std::string text(const char* name) {
    const Value* const v = take(name);
    return v ? v->as_string() : "";
  }
  bool flag(const char* name) {
    const Value* const v = take(name);
    return v && v->as_bool();
  }
  void done() const {
    for (const Value::Member& member : value_.members())
      if (!member.key.starts_with("_") && std::find(taken_.begin(), taken_.end(), member.key) == taken_.end())
        throw wrong(family_, concat(where_, " has \"", member.key, "\", which is not known"));
  }

 private:
  const Value& value_;
  const std::string family_, where_;
  std::vector<std::string> taken_;
};

std::vector<std::string> words(const Value& value) {
  if (!value.is_array()) return {value.as_string()};
  std::vector<std::string> list;
  for (const Value& one : value.items()) list.push_back(one.as_string());
  return list;
}

FamilyKey read_key(const std::string& family, const std::string& names, const Value& value) {
  FamilyKey key;
  key.names = names;
  if (value.is_string()) {
    key.sets = {value.as_string()};
    return key;
  }
  Members m(value, family, concat("keys: \"", names, "\""));
  if (const Value* const sets = m.take("sets")) key.sets = words(*sets);
  if (const Value* const absent = m.take("absent")) key.absent = *absent;
  if (const Value* const null = m.take("null")) key.null = *null;
  if (const Value* const power = m.take("power")) key.power = power->as_double();
  if (const Value* const values = m.take("values"))
    for (const Value::Member& one : values->members()) key.values.emplace_back(one.key, one.value.as_string());
  key.reads = m.text("reads"), key.why = m.text("why");
  key.negated = m.flag("not"), key.optional = m.flag("optional"), key.all_spellings = m.flag("all_spellings");
  if (const Value* const only = m.take("only")) key.use = KeyUse::refused, key.only = only->items();
  if (const Value* const none = m.take("no_effect")) key.use = KeyUse::no_effect, key.why = none->as_string();
  m.done();
  if (key.use == KeyUse::honoured && key.sets.empty() && key.reads.empty())
    throw wrong(family, concat("keys: \"", names, "\" needs one of sets, only, no_effect and reads"));
  for (const std::string& option : key.sets)
    if (static const OptionTable table = option_table(); !table.find(option))
      throw wrong(family, concat("keys: \"", names, "\" sets ", option, ", which is no option of model/gpt"));
  return key;
}

std::vector<FamilyTensor> read_tensors(const std::string& family, const std::string& layer, const Value& value) {
  std::vector<FamilyTensor> list;
  if (!value.is_object()) {
    for (const std::string& name : words(value)) list.push_back({name});
    return list;
  }
  Members m(value, family, concat("tensors: \"", layer, "\""));
  const std::string rows = m.text("rows");
  if (!rows.empty() && rows != "by group")
    throw wrong(family, concat("tensors: \"", layer, "\" has rows \"", rows, "\"; \"by group\" is known"));
  list.push_back({m.text("tensor"), m.flag("transposed"), !rows.empty()});
  m.done();
  if (list[0].name.empty()) throw wrong(family, concat("tensors: \"", layer, "\" needs \"tensor\""));
  return list;
}

Family::Rope read_rope_rule(const std::string& family, const Value& value) {
  Members m(value, family, "rope");
  Family::Rope rope;
  if (const Value* const theta = m.take("theta")) rope.theta = theta->as_double();
  if (const Value* const percent = m.take("percent")) rope.percent = percent->as_double();
  if (const Value* const local = m.take("local")) {
    rope.local = true;
    if (local->is_number()) rope.local_base = local->as_double();
  }
  if (const Value* const original = m.take("original")) rope.original = original->as_int();
  rope.theta_key = m.text("theta_key"), rope.percent_key = m.text("percent_key");
  m.done();
  return rope;
}

Family::Window read_window_rule(const std::string& family, const Value& value) {
  Members m(value, family, "window");
  Family::Window window;
  if (const Value* const size = m.take("size"); size && !size->is_null()) window.size = size->as_int();
  const Value* const layers = m.take("layers");
  if (layers && layers->is_int()) window.pattern = layers->as_int();
  if (layers && layers->is_string()) window.layers = layers->as_string();
  if (window.pattern < 1 && window.layers != "all" && window.layers != "from max_window_layers" &&
      window.layers != "without rope")
    throw wrong(family,
                "window: layers is \"all\", \"from max_window_layers\", \"without rope\" or a number n (all but every "
                "n-th)");
  window.has_switch = m.flag("switch"), window.types = m.flag("types");
  m.done();
  return window;
}

Family::Experts read_experts_rule(const std::string& family, const Value& value) {
  Members m(value, family, "experts");
  Family::Experts experts;
  experts.dense = m.text("dense");
  if (const Value* const weight = m.take("router_aux_loss_coef")) experts.balance_weight = weight->as_double();
  m.done();
  if (!experts.dense.empty() && experts.dense != "decoder_sparse_step" && experts.dense != "first_k_dense_replace")
    throw wrong(family, "experts: dense is \"decoder_sparse_step\" or \"first_k_dense_replace\"");
  return experts;
}

Family read(const Value& value) {
  const Value* const type = value.find("model_type");
  const std::string name = type && type->is_string() ? type->as_string() : "";
  Members m(value, name, "it");
  Family f;
  m.take("like"), m.take("model_type");
  f.model_type = name, f.title = m.text("title"), f.architecture = m.text("architecture"), f.prefix = m.text("prefix");
  if (f.title.empty()) f.title = name;
  if (const Value* const options = m.take("options")) f.options = *options;
  if (const Value* const keys = m.take("keys"))
    for (const Value::Member& key : keys->members()) f.keys.push_back(read_key(name, key.key, key.value));
  if (const Value* const tensors = m.take("tensors"))
    for (const Value::Member& t : tensors->members()) f.tensors.emplace_back(t.key, read_tensors(name, t.key, t.value));
  if (const Value* const ignored = m.take("ignored")) f.ignored = words(*ignored);
  if (const Value* const rope = m.take("rope")) f.rope = read_rope_rule(name, *rope);
  if (const Value* const window = m.take("window")) f.window = read_window_rule(name, *window);
  if (const Value* const experts = m.take("experts")) f.experts = read_experts_rule(name, *experts);
  if (const Value* const interval = m.take("no_rope_interval")) f.no_rope_interval = interval->as_int();
  m.done();
  return f;
}

struct Known {
  std::vector<Value> texts;  // merged with what they are like
  std::vector<FamilyPtr> families;

  const Value* find(const std::string& model_type) const {
    for (const Value& text : texts)
      if (text.find("model_type")->as_string() == model_type) return &text;
    return nullptr;
  }
  Value with_base(const Value& own) const {
    const Value* const like = own.find("like");
    if (!like) return own;
    const Value* const base = find(like->as_string());
    if (!base)
      throw fail(ErrorCode::config, "model/gpt: a family is like \"", like->as_string(), "\"; known are ", names());
    Value all = merged(*base, own);
    for (const char* of_base : {"title", "architecture"})
      if (!own.find(of_base)) all.erase(of_base);
    return all;
  }
  std::string names() const {
    std::string list;
    for (const FamilyPtr& family : families) list += concat(list.empty() ? "" : ", ", family->model_type);
    return list;
  }
};

const Known& known() {
  static const Known all = [] {
    Known k;
    const Value table = parse_json(kFamilies, "families.cpp");
    for (const Value& own : table.items()) {
      k.texts.push_back(k.with_base(own));
      if (own.find("like")) k.families.push_back(std::make_shared<const Family>(read(k.texts.back())));
    }
    return k;
  }();
  return all;
}

bool is_size(const std::string& option) {
  for (const char* one : {"num_query_groups", "ffn_hidden_size", "num_experts", "num_experts_per_tok",
                          "moe_intermediate_size", "shared_expert_intermediate_size"})
    if (option == one) return true;
  return false;
}

}  // namespace

const std::vector<FamilyTensor>* Family::find_tensor(const std::string& layer) const {
  for (const auto& [ours, theirs] : tensors)
    if (ours == layer) return &theirs;
  return nullptr;
}

const std::vector<FamilyPtr>& known_families() { return known().families; }

FamilyPtr known_family(const std::string& model_type) {
  for (const FamilyPtr& family : known().families)
    if (family->model_type == model_type) return family;
  return nullptr;
}

std::string known_names() { return known().names(); }

FamilyPtr read_family(const Value& option) {
  if (option.is_null()) return nullptr;
  if (option.is_string()) {
    if (FamilyPtr family = known_family(option.as_string())) return family;
    throw fail(ErrorCode::config, "model/gpt: family is \"", option.as_string(), "\"; known are ", known_names(),
               "\n   an object describes another one; plugins/model/gpt/README.md has its form");
  }
  if (!option.is_object() || !option.find("model_type"))
    throw wrong("", concat("it is ", option.to_json(), "; a name, or an object with \"model_type\" was wanted"));
  return std::make_shared<const Family>(read(known().with_base(option)));
}

Value family_options(const Family& family, std::optional<int64_t> hidden_size) {
  Value options = Value::object();
  if (!family.options.is_object()) return options;
  for (const Value::Member& member : family.options.members()) {
    Value value = member.value;
    if (value.is_string() && value.as_string() == "sqrt(hidden_size)")
      value = hidden_size ? Value(std::sqrt(static_cast<double>(*hidden_size))) : Value();
    options.set(member.key, value);
  }
  options.set("add_bias", false);  // which layers have biases, each option says for itself
  // What a file that says nothing means, but for what belongs to a run or to a size.
  for (const FamilyKey& key : family.keys)
    for (const std::string& option : key.sets)
      if (key.absent && !key.absent->is_null() && !is_of_training(option) && !is_size(option))
        options.set(option, to_ours(key, *key.absent));
  if (family.rope) options.set("rotary_base", family.rope->theta);
  if (family.rope && family.rope->local_base) options.set("rotary_local_base", *family.rope->local_base);
  if (family.rope && family.rope->percent) options.set("rotary_percent", *family.rope->percent);
  return options;
}

Value to_ours(const FamilyKey& key, const Value& theirs) {
  if (!key.values.empty()) {
    for (const auto& [word, option] : key.values)
      if (theirs.is_string() && theirs.as_string() == word) return option;
    std::string list;
    for (const auto& [word, option] : key.values) list += concat(list.empty() ? "" : ", ", word);
    throw fail(ErrorCode::config, "known are ", list);
  }
  if (key.negated) return !theirs.as_bool();
  return key.power == 1 ? theirs : Value(std::pow(theirs.as_double(), key.power));
}

std::optional<Value> to_theirs(const FamilyKey& key, const Value& ours) {
  if (!key.null.is_null() && ours.is_number() && ours.as_double() == key.null.as_double()) return Value();
  for (const auto& [word, option] : key.values)
    if (ours.is_string() && ours.as_string() == option) return Value(word);
  if (!key.values.empty()) return std::nullopt;
  if (key.negated) return Value(!ours.as_bool());
  if (key.power == 1) return ours;
  const double theirs = std::pow(ours.as_double(), 1 / key.power), whole = std::round(theirs);
  return std::abs(theirs - whole) < 1e-9 * whole ? Value(static_cast<int64_t>(whole)) : Value(theirs);
}

}  // namespace drivetrain::gpt
