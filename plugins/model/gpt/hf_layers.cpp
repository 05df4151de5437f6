#include "hf_layers.h"

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain::gpt {
namespace {

using Layers = std::vector<int64_t>;

Value flags(const Layers& layers) { return Value(Value::Array(layers.begin(), layers.end())); }

Layers by_interval(int64_t layers, int64_t n) {
  Layers result;
  for (int64_t i = 0; i < layers; ++i) result.push_back(n < 1 || (i + 1) % n != 0);
  return result;
}

// Which layers slide where the file lists none.
Layers by_rule(const Family::Window& rule, int64_t layers, int64_t first, const Layers& rotary) {
  if (rule.pattern > 0) return by_interval(layers, rule.pattern);
  Layers result(size_t(layers), 1);
  for (int64_t i = 0; i < layers; ++i) {
    if (rule.layers == "from max_window_layers") result[size_t(i)] = i >= first;
    if (rule.layers == "without rope") result[size_t(i)] = rotary.empty() ? 0 : 1 - rotary[size_t(i)];
  }
  return result;
}

Layers listed_layers(const HfReader& reader, const Value& types) {
  Layers result;
  for (const Value& type : types.items()) {
    const std::string& name = type.as_string();
    reader.refuse_if(name != "full_attention" && name != "sliding_attention", "layer_types",
                     "known are full_attention and sliding_attention");
    result.push_back(name == "sliding_attention");
  }
  return result;
}

Layers read_rotary_layers(const HfReader& reader, int64_t layers) {
  if (const Value* const given = reader.find("no_rope_layers")) {
    Layers result;
    for (const Value& one : given->items()) result.push_back(one.as_int());
    return result;
  }
  return by_interval(layers, reader.integer("no_rope_layer_interval", reader.family().no_rope_interval));
}

void read_windows(const HfReader& reader, int64_t layers, const Layers& rotary, Value& options) {
  const Value* const types = reader.find("layer_types");
  const auto any = [](const Layers& list) { return std::find(list.begin(), list.end(), 1) != list.end(); };
  const Layers said = types ? listed_layers(reader, *types) : Layers{};
  const std::optional<Family::Window>& rule = reader.family().window;
  if (!rule)
    return reader.refuse_if(any(said), "layer_types", "every layer of this family attends to the whole sequence");
  const bool is_off = rule->has_switch && !reader.flag("use_sliding_window", false);
  const int64_t size =
      is_off || reader.is_null("sliding_window") ? 0 : reader.integer("sliding_window", rule->size.value_or(0));
  Family::Window used = *rule;
  if (used.pattern > 0) used.pattern = reader.integer("sliding_window_pattern", used.pattern);
  Layers slide = by_rule(used, layers, reader.integer("max_window_layers", 28), rotary);
  if (types && !rule->types)
    reader.refuse_if(size > 0 && said != slide, "layer_types",
                     "every layer of this family has the window of sliding_window");
  if (types && rule->types) slide = said;
  if (!any(slide) || (size == 0 && !rule->types)) return;
  reader.refuse_if(size < 1 && any(slide) && types, "layer_types", "layers slide, and sliding_window says no window");
  if (size < 1) return;
  options.set("sliding_window", size), options.set("window_layers", flags(slide));
}

// Which layers have experts, and whether their loads are kept equal by a loss.
void read_experts(const HfReader& reader, int64_t layers, Value& options) {
  const Family::Experts& rule = *reader.family().experts;
  const double weight = reader.number("router_aux_loss_coef", rule.balance_weight);
  reader.refuse_if(weight < 0, "router_aux_loss_coef", "a loss below 0 would make loads unequal; it is at least 0");
  options.set("router_aux_loss_coef", reader.flag("output_router_logits", false) ? weight : 0.0);
  if (rule.dense == "first_k_dense_replace")
    options.set("first_k_dense_replace", reader.integer("first_k_dense_replace", 0));
  if (rule.dense != "decoder_sparse_step") return;
  const int64_t step = reader.integer("decoder_sparse_step", 1);
  reader.refuse_if(step < 1, "decoder_sparse_step", "every n-th layer has experts, and n is at least 1");
  Layers sparse;
  for (int64_t i = 0; i < layers; ++i) sparse.push_back((i + 1) % step == 0);
  if (const Value* const dense = reader.find("mlp_only_layers"))
    for (const Value& one : dense->items()) {
      reader.refuse_if(one.as_int() < 0 || one.as_int() >= layers, "mlp_only_layers", "there is no such layer");
      sparse[size_t(one.as_int())] = 0;
    }
  reader.refuse_if(layers > 0 && std::find(sparse.begin(), sparse.end(), 1) == sparse.end(),
                   reader.find("mlp_only_layers") ? "mlp_only_layers" : "decoder_sparse_step", "no layer has experts");
  if (std::find(sparse.begin(), sparse.end(), 0) != sparse.end()) options.set("moe_layers", flags(sparse));
}

}  // namespace

void read_layers(const HfReader& reader, Value& options) {
  const Value* const count = options.find("num_layers");
  const int64_t layers = count ? std::clamp<int64_t>(count->as_int(), 0, 10000) : 0;
  Layers rotary;
  if (reader.family().no_rope_interval > 0) {
    rotary = read_rotary_layers(reader, layers);
    if (std::find(rotary.begin(), rotary.end(), 0) != rotary.end()) options.set("rotary_layers", flags(rotary));
  }
  read_windows(reader, layers, rotary, options);
  if (reader.family().experts) read_experts(reader, layers, options);
}

bool can_say_windows(const Family& family, const Shape& s) {
  if (s.window_layers.empty() || family.window->types) return true;
  return s.window_layers == by_rule(*family.window, s.layers, 0, s.rotary_layers);
}

void write_balance(const Family& family, const Shape& s, const Shape* base, Value& c) {
  if (!family.experts) return;
  const auto weight = [](const Shape& of) {
    return of.mixture.balance == BalanceLoss::pooled ? of.mixture.balance_weight : 0;
  };
  if (base && weight(*base) == weight(s)) return;
  if (weight(s) > 0 || !base) c.set("router_aux_loss_coef", weight(s));
  c.set("output_router_logits", weight(s) > 0);
}

void write_layers(const Family& family, const Shape& s, Value& c) {
  if (family.no_rope_interval > 0) {
    c.set("no_rope_layers", flags(s.rotary_layers.empty() ? Layers(size_t(s.layers), 1) : s.rotary_layers));
    c.set("no_rope_layer_interval", family.no_rope_interval);
  }
  if (family.experts && family.experts->dense == "decoder_sparse_step") {
    Value::Array dense;
    for (int64_t i = 0; i < s.layers; ++i)
      if (!s.is_mixture(i)) dense.emplace_back(i);
    c.set("decoder_sparse_step", 1), c.set("mlp_only_layers", dense);
  } else if (family.experts && !family.experts->dense.empty()) {
    c.set("first_k_dense_replace", s.mixtures(s.layers) == s.layers ? 0 : s.layers - s.mixtures(s.layers));
  }
  if (!family.window) return;
  const Family::Window& rule = *family.window;
  const bool slides = !s.window_layers.empty();
  if (rule.has_switch) c.set("use_sliding_window", slides);
  // Where no layer slides a size of a family that always has one says nothing.
  c.set("sliding_window", slides ? Value(s.window) : rule.pattern > 0 ? Value(s.positions) : Value());
  if (rule.layers == "from max_window_layers") {
    const auto first = std::find(s.window_layers.begin(), s.window_layers.end(), 1);
    c.set("max_window_layers", slides ? Value(int64_t(first - s.window_layers.begin())) : Value(s.layers));
  }
  if (!rule.types) return;
  Value::Array types;
  for (int64_t i = 0; i < s.layers; ++i) types.push_back(s.slides(i) ? "sliding_attention" : "full_attention");
  c.set("layer_types", types);
}

}  // namespace drivetrain::gpt
