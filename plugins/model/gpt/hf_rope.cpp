#include "hf_rope.h"

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain::gpt {
namespace {

constexpr const char* kDiffer =
    ": old and new spelling of one fact, which differ\n   keep the one that the weights were trained with";

const Value* member_of(const Value* group, const char* name) {
  const Value* const found = group && group->is_object() ? group->find(name) : nullptr;
  return found && !found->is_null() ? found : nullptr;
}

// Gemma 3 and OLMo 3: one group for each type of layer.
bool is_by_layer(const Value* group) {
  return member_of(group, "full_attention") || member_of(group, "sliding_attention");
}

struct Rope {
  const HfReader& reader;
  const Family::Rope& rule;
  int64_t positions;
  const Value *fresh = reader.find("rope_parameters"), *old = reader.find("rope_scaling");
  const Value* local = nullptr;  // of fresh, for layers with a window

  // The value of a number that may stand in either group or in a key of its own; all have to agree.
  double number(const char* name, const std::string& key, double otherwise) const {
    const Value* first = nullptr;
    std::string first_place;
    const std::pair<std::string, const Value*> places[] = {{"rope_parameters", member_of(fresh, name)},
                                                           {"rope_scaling", member_of(old, name)},
                                                           {name, reader.find(name)},
                                                           {key, key.empty() ? nullptr : reader.find(key)}};
    for (const auto& [place, value] : places) {
      if (!value) continue;
      if (first && first->as_double() != value->as_double())
        throw reader.wrong(name, " is ", first->to_json(), " in ", first_place, " and ", value->to_json(), " in ",
                           place, kDiffer);
      if (!first) first = value, first_place = place;
    }
    return first ? first->as_double() : otherwise;
  }

  RotaryScaling scaling(double base) const {
    RotaryScaling plain;
    plain.base = base;
    const Value* const outside = reader.find("original_max_position_embeddings");
    const auto original = outside ? std::optional(outside->as_int()) : rule.original;
    for (const Value* group : {fresh, old})
      if (const Value* const inside = member_of(group, "original_max_position_embeddings");
          inside && outside && inside->as_int() != outside->as_int())
        throw reader.wrong("original_max_position_embeddings is ", outside->to_json(), " and ", inside->to_json(),
                           " beside the factors of rope", kDiffer);
    const auto read = [&](const Value* group, const char* key) {
      return group ? read_scaling(*group, plain, positions, original, concat(reader.path(), ": ", key)) : plain;
    };
    const RotaryScaling by_fresh = read(fresh, "rope_parameters"), by_old = read(old, "rope_scaling");
    if (fresh && old && !same_scaling(by_fresh, by_old))
      throw reader.wrong("rope_parameters is ", fresh->to_json(), " and rope_scaling is ", old->to_json(), kDiffer);
    return fresh ? by_fresh : by_old;
  }

  double local_base(double base) const {
    if (local) {
      const RotaryScaling of_local =
          read_scaling(*local, {}, positions, {}, concat(reader.path(), ": rope_parameters"));
      if (of_local.type != "default")
        throw reader.wrong("rope_parameters: \"sliding_attention\": ", local->to_json(),
                           " is not supported: rope of layers with a window is not stretched");
    }
    const Value *const in_group = member_of(local, "rope_theta"), *const key = reader.find("rope_local_base_freq");
    if (in_group && key && in_group->as_double() != key->as_double())
      throw reader.wrong("rope_local_base_freq is ", key->to_json(), " and rope_parameters is ",
                         reader.find("rope_parameters")->to_json(), kDiffer);
    return in_group ? in_group->as_double() : key ? key->as_double() : rule.local_base.value_or(base);
  }
};

Value sorted(Value group) {
  auto& members = group.members();
  std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  return group;
}

// What transformers 5 calls rope_parameters.
Value parameters(const Family::Rope& rule, const Shape& s) {
  Value group = scaling_value(s.scaling);
  if (group.is_null()) group.set("rope_type", "default");
  group.set("rope_theta", s.scaling.base);
  if (rule.percent) group.set("partial_rotary_factor", s.rotary_percent);
  if (!rule.local) return sorted(group);
  Value both = Value::object(), local = Value::object();
  local.set("rope_theta", s.local_base.value_or(s.scaling.base)), local.set("rope_type", "default");
  both.set("full_attention", sorted(group)), both.set("sliding_attention", local);
  return both;
}

// transformers 4 takes three keys of longrope and no more.
Value old_scaling(const RotaryScaling& r) {
  Value group = scaling_value(r);
  if (r.type != "longrope") return group;
  for (const char* key : {"factor", "original_max_position_embeddings", "rope_type"}) group.erase(key);
  group.set("type", "longrope");
  return group;
}

}  // namespace

void read_rope(const HfReader& reader, Value& options) {
  const Family::Rope& rule = *reader.family().rope;
  const Value* const positions = options.find("max_position_embeddings");
  Rope rope{reader, rule, positions ? positions->as_int() : 0};
  if (is_by_layer(rope.fresh)) {
    reader.refuse_if(!rule.local, "rope_parameters", "all layers of this family have the same angles");
    rope.local = member_of(rope.fresh, "sliding_attention"), rope.fresh = member_of(rope.fresh, "full_attention");
  }
  const RotaryScaling scaling = rope.scaling(rope.number("rope_theta", rule.theta_key, rule.theta));
  options.set("rotary_base", scaling.base), options.set("rope_scaling", scaling_value(scaling));
  const double percent = rope.number("partial_rotary_factor", rule.percent_key, rule.percent.value_or(1));
  if (!rule.percent && percent != 1)
    throw reader.wrong("\"partial_rotary_factor\": ", Value(percent).to_json(),
                       " is not supported: rope turns whole heads");
  options.set("rotary_percent", percent);
  // Layers without a window do not read it.
  const Value* const windows = options.find("window_layers");
  if (rule.local && windows && !windows->items().empty())
    options.set("rotary_local_base", rope.local_base(scaling.base));
}

void write_rope(const Family& family, const Shape& s, Value& c) {
  if (!family.rope) return;
  const Family::Rope& rule = *family.rope;
  const auto add = [&](const std::string& key, const Value& value) {
    if (!key.empty() && (!c.find(key) || c.find(key)->is_null())) c.set(key, value);
  };
  add("rope_parameters", parameters(rule, s));
  add("rope_theta", s.scaling.base), add(rule.theta_key, s.scaling.base), add("rope_scaling", old_scaling(s.scaling));
  if (rule.percent) add(rule.percent_key.empty() ? "partial_rotary_factor" : rule.percent_key, s.rotary_percent);
  if (rule.local_base) add("rope_local_base_freq", s.local_base.value_or(s.scaling.base));
  if (s.scaling.type == "longrope") add("original_max_position_embeddings", s.scaling.original_positions);
}

}  // namespace drivetrain::gpt
