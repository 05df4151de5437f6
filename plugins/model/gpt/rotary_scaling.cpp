#include "rotary_scaling.h"

#include <drivetrain/error.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace drivetrain::gpt {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

// Which keys a type knows; those behind the bar may be absent.
struct Kind {
  const char* type;
  std::vector<const char*> needed, optional;
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> list = {
      {"default", {}, {}},
      {"linear", {"factor"}, {}},
      {"dynamic", {"factor"}, {"original_max_position_embeddings"}},
      {"llama3", {"factor", "low_freq_factor", "high_freq_factor"}, {"original_max_position_embeddings"}},
      {"yarn",
       {"factor"},
       {"original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim",
        "truncate"}},
      {"longrope",
       {"short_factor", "long_factor"},
       {"original_max_position_embeddings", "factor", "attention_factor"}}};
  return list;
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
  void read(const char* key, double& number) const {
    if (const Value* const v = find(key)) number = v->as_double();
  }
  void read(const char* key, std::vector<double>& list) const {
    const Value* const v = find(key);
    for (size_t i = 0; v && i < v->items().size(); ++i) list.push_back(v->items()[i].as_double());
  }

  const Kind& kind() const {
    const Value *fresh = find("rope_type"), *old = find("type");
    if (fresh && old && !(*fresh == *old))
      throw wrong("rope_type is ", fresh->to_json(), " and type is ", old->to_json(),
                  ": two spellings of one fact, which differ");
    std::string type = fresh ? fresh->as_string() : old ? old->as_string() : "default";
    // Phi-3's older names of one thing.
    if ((type == "su" || type == "yarn") && find("short_factor")) type = "longrope";
    std::string known;
    for (const Kind& kind : kinds()) {
      if (type == kind.type) return kind;
      known += concat(known.empty() ? "" : ", ", kind.type);
    }
    throw wrong("rope_type \"", type, "\" is not supported; known are ", known);
  }
  void check_keys(const Kind& kind) const {
    std::vector<std::string> known = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
    known.insert(known.end(), kind.needed.begin(), kind.needed.end());
    known.insert(known.end(), kind.optional.begin(), kind.optional.end());
    for (const Value::Member& member : value_.members())
      if (!member.value.is_null() && std::find(known.begin(), known.end(), member.key) == known.end())
        throw wrong("\"", member.key, "\": ", member.value.to_json(), " is not known for rope_type ", kind.type);
    for (const char* key : kind.needed)
      if (!find(key)) throw wrong("rope_type ", kind.type, " needs \"", key, "\"");
  }
  template <class... Parts>
  Error wrong(const Parts&... parts) const {
    return fail(ErrorCode::config, "model/gpt: ", where_, " ", parts...);
  }

 private:
  const Value& value_;
  const std::string where_;
};

// Turns within the original context: many of them stay, few are stretched by `factor`, between the two a mixture.
double llama3_frequency(const RotaryScaling& r, double w) {
  const double turns = static_cast<double>(r.original_positions) * w / kTurn;
  const double mix = (turns - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
  if (mix < 0) return w / r.factor;
  return mix <= 1 ? (1 - mix) * w / r.factor + mix * w : w;
}

// Pairs that turn often within the original context stay, those that turn seldom are stretched, between a ramp.
void stretch_by_yarn(const RotaryScaling& r, int64_t dim, std::vector<double>& frequencies) {
  const auto d = static_cast<double>(dim);
  const auto pair_of = [&](double turns) {
    return d * std::log(static_cast<double>(r.original_positions) / (turns * kTurn)) / (2 * std::log(r.base));
  };
  double low = pair_of(r.beta_fast), high = pair_of(r.beta_slow);
  if (r.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, d - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= ramp / r.factor + 1 - ramp;
  }
}

double yarn_scale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

double scale_of(const RotaryScaling& r) {
  if (r.attention_factor > 0) return r.attention_factor;
  if (r.type == "yarn")
    return r.mscale != 0 && r.mscale_all_dim != 0
               ? yarn_scale(r.factor, r.mscale) / yarn_scale(r.factor, r.mscale_all_dim)
               : yarn_scale(r.factor, 1);
  if (r.type == "longrope" && r.factor > 1)
    return std::sqrt(1 + std::log(r.factor) / std::log(static_cast<double>(r.original_positions)));
  return 1;
}

void check_numbers(const RotaryScaling& r, const Group& group) {
  if (r.type == "llama3" && (r.factor < 1 || r.low_freq_factor <= 0 || r.high_freq_factor <= r.low_freq_factor))
    throw group.wrong("rope_type llama3 needs factor >= 1 and 0 < low_freq_factor < high_freq_factor");
  const auto all_positive = [](const std::vector<double>& list) {
    return std::all_of(list.begin(), list.end(), [](double f) { return f > 0; });
  };
  if (!(r.factor > 0) || r.original_positions < 0 || !all_positive(r.short_factor) || !all_positive(r.long_factor))
    throw group.wrong("rope_type ", r.type, " needs factors and positions above 0");
}

}  // namespace

RotaryAngles rotary_angles(const RotaryScaling& r, int64_t dim, int64_t length) {
  RotaryAngles angles;
  for (int64_t i = 0; i < dim / 2; ++i) {
    double w = std::pow(r.base, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
    if (r.type == "linear") w /= r.factor;
    if (r.type == "llama3") w = llama3_frequency(r, w);
    if (r.type == "longrope") w /= (length > r.original_positions ? r.long_factor : r.short_factor).at(size_t(i));
    angles.frequencies.push_back(w);
  }
  if (r.type == "yarn") stretch_by_yarn(r, dim, angles.frequencies);
  angles.scale = scale_of(r);
  return angles;
}

RotaryScaling read_scaling(const Value& value, const RotaryScaling& base, int64_t positions,
                           std::optional<int64_t> original, const std::string& where) {
  const Group group(value, where);
  const Kind& kind = group.kind();
  group.check_keys(kind);
  RotaryScaling r{base.base, kind.type};
  group.read("rope_theta", r.base);
  group.read("factor", r.factor), group.read("attention_factor", r.attention_factor);
  group.read("low_freq_factor", r.low_freq_factor), group.read("high_freq_factor", r.high_freq_factor);
  group.read("beta_fast", r.beta_fast), group.read("beta_slow", r.beta_slow);
  group.read("mscale", r.mscale), group.read("mscale_all_dim", r.mscale_all_dim);
  group.read("short_factor", r.short_factor), group.read("long_factor", r.long_factor);
  if (const Value* const truncate = group.find("truncate")) r.truncate = truncate->as_bool();
  if (r.type == "default" || r.type == "linear" || r.type == "dynamic") return r;
  const Value* const given = group.find("original_max_position_embeddings");
  r.original_positions = given ? given->as_int() : original.value_or(positions);
  if (r.type == "longrope" && !group.find("factor") && r.original_positions > 0)
    r.factor = static_cast<double>(positions) / static_cast<double>(r.original_positions);
  check_numbers(r, group);
  return r;
}

Value scaling_value(const RotaryScaling& r) {
  Value rope;
  if (r.type == "default") return rope;
  const auto list = [](const std::vector<double>& numbers) {
    return Value(Value::Array(numbers.begin(), numbers.end()));
  };
  if (r.attention_factor > 0) rope.set("attention_factor", r.attention_factor);
  if (r.type == "yarn") rope.set("beta_fast", r.beta_fast), rope.set("beta_slow", r.beta_slow);
  rope.set("factor", r.factor);
  if (r.type == "llama3") rope.set("high_freq_factor", r.high_freq_factor);
  if (r.type == "longrope") rope.set("long_factor", list(r.long_factor));
  if (r.type == "llama3") rope.set("low_freq_factor", r.low_freq_factor);
  if (r.mscale != 0) rope.set("mscale", r.mscale);
  if (r.mscale_all_dim != 0) rope.set("mscale_all_dim", r.mscale_all_dim);
  if (r.original_positions > 0) rope.set("original_max_position_embeddings", r.original_positions);
  rope.set("rope_type", r.type);
  if (r.type == "longrope") rope.set("short_factor", list(r.short_factor));
  if (r.type == "yarn" && !r.truncate) rope.set("truncate", false);
  return rope;
}

bool same_scaling(const RotaryScaling& a, const RotaryScaling& b) {
  return a.base == b.base && scaling_value(a) == scaling_value(b);
}

}  // namespace drivetrain::gpt
