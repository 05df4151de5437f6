#include "hf_rope.h"

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain::gpt {
namespace {

constexpr const char* kOfAny[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
constexpr const char* kOfLlama3[] = {"factor", "low_freq_factor", "high_freq_factor",
                                     "original_max_position_embeddings"};

template <size_t count>
bool is_one_of(const std::string& key, const char* const (&list)[count]) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

class Group {
 public:
  Group(const Value& value, std::string where) : value_(value), where_(std::move(where)) {
    if (!value.is_object()) throw wrong("is ", value.to_json(), "; it has to be an object or null");
  }
  const Value* find(const char* key) const {
    const Value* const v = value_.find(key);
    return v && !v->is_null() ? v : nullptr;
  }
  double number(const char* key) const { return find(key)->as_double(); }

  std::string type() const {
    const Value *fresh = find("rope_type"), *old = find("type");
    if (fresh && old && !(*fresh == *old))
      throw wrong("rope_type is ", fresh->to_json(), " and type is ", old->to_json(),
                  ": two spellings of one fact, which differ");
    return fresh ? fresh->as_string() : old ? old->as_string() : "default";
  }
  void check_keys(const std::string& type) const {
    for (const Value::Member& member : value_.members())
      if (!member.value.is_null() && !is_one_of(member.key, kOfAny) &&
          !(type == "llama3" && is_one_of(member.key, kOfLlama3)))
        throw wrong("\"", member.key, "\": ", member.value.to_json(), " is not known for rope_type ", type);
    if (find("partial_rotary_factor") && number("partial_rotary_factor") != 1)
      throw wrong("\"partial_rotary_factor\": ", find("partial_rotary_factor")->to_json(),
                  " is not supported: rotary embeddings turn whole heads");
  }
  template <class... Parts>
  Error wrong(const Parts&... parts) const {
    return fail(ErrorCode::config, "model/gpt: ", where_, " ", parts...);
  }

 private:
  const Value& value_;
  const std::string where_;
};

bool same_scaling(const RotaryScaling& a, const RotaryScaling& b) {
  return a.base == b.base && scaling_value(a) == scaling_value(b);
}

}  // namespace

RotaryScaling read_scaling(const Value& value, const RotaryScaling& base, int64_t positions, const std::string& where) {
  const Group group(value, where);
  RotaryScaling r = base;
  r.llama3 = false;
  if (group.find("rope_theta")) r.base = group.number("rope_theta");
  const std::string type = group.type();
  if (type != "default" && type != "llama3")
    throw group.wrong("rope_type \"", type, "\" is not supported; known are default and llama3");
  group.check_keys(type);
  if (type == "default") return r;
  r.llama3 = true;
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"})
    if (!group.find(key)) throw group.wrong("rope_type llama3 needs \"", key, "\"");
  r.factor = group.number("factor");
  r.low_freq_factor = group.number("low_freq_factor"), r.high_freq_factor = group.number("high_freq_factor");
  const Value* const original = group.find("original_max_position_embeddings");
  r.original_positions = original ? original->as_int() : positions;
  if (r.factor < 1 || r.low_freq_factor <= 0 || r.high_freq_factor <= r.low_freq_factor)
    throw group.wrong("rope_type llama3 needs factor >= 1 and 0 < low_freq_factor < high_freq_factor");
  return r;
}

RotaryScaling read_rope(const HfReader& reader, int64_t positions) {
  RotaryScaling plain;
  const Value *fresh = reader.find("rope_parameters"), *old = reader.find("rope_scaling");
  const Value* const theta = reader.find("rope_theta");
  const auto base_in = [](const Value* group) {
    const Value* const found = group && group->is_object() ? group->find("rope_theta") : nullptr;
    return found && !found->is_null() ? found : nullptr;
  };
  // Where only one of them has a base, it is that of both.
  const Value* const given = base_in(fresh) ? base_in(fresh) : base_in(old) ? base_in(old) : theta;
  if (given) plain.base = given->as_double();
  const auto read = [&](const Value* group, const char* key) {
    return group ? read_scaling(*group, plain, positions, concat(reader.path(), ": ", key)) : plain;
  };
  const RotaryScaling by_fresh = read(fresh, "rope_parameters"), by_old = read(old, "rope_scaling");
  const char* const differ =
      ": old and new spelling of one fact, which differ\n   keep the one that the weights were trained with";
  if (fresh && old && !same_scaling(by_fresh, by_old))
    throw reader.wrong("rope_parameters is ", fresh->to_json(), " and rope_scaling is ", old->to_json(), differ);
  if (theta && theta->as_double() != plain.base)
    throw reader.wrong("rope_theta is ", theta->to_json(), " and ", fresh ? "rope_parameters is " : "rope_scaling is ",
                       (fresh ? fresh : old)->to_json(), differ);
  return fresh ? by_fresh : by_old;
}

Value scaling_value(const RotaryScaling& r) {
  Value rope;
  if (!r.llama3) return rope;
  rope.set("factor", r.factor);
  rope.set("high_freq_factor", r.high_freq_factor);
  rope.set("low_freq_factor", r.low_freq_factor);
  rope.set("original_max_position_embeddings", r.original_positions);
  rope.set("rope_type", "llama3");
  return rope;
}

Value rope_parameters(const RotaryScaling& r) {
  Value rope = scaling_value(r);
  if (rope.is_null()) rope.set("rope_type", "default");
  rope.set("rope_theta", r.base);
  std::sort(rope.members().begin(), rope.members().end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  return rope;
}

}  // namespace drivetrain::gpt
