#include "names.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <drivetrain/error.h>

namespace drivetrain::megatron {
namespace {

using Renaming = std::pair<const char*, const char*>;  // a beginning, and what stands for it

// Of whole names. All but the last are of model classes before Megatron Core (megatron/legacy/model).
constexpr Renaming kWhole[] = {
    {"language_model.embedding.", "embedding."},    {"language_model.encoder.", "decoder."},
    {"language_model.transformer.", "decoder."},    {"language_model.output_layer.", "output_layer."},
    {"word_embeddings_for_head.", "output_layer."}, {"decoder.final_norm.", "decoder.final_layernorm."},
};

// Of what follows a layer's number. The first two are Transformer Engine's, which keeps a norm with the matrix behind
// it.
constexpr Renaming kInLayer[] = {
    {"self_attention.linear_qkv.layer_norm_", "input_layernorm."},
    {"mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm."},
    {"input_norm.", "input_layernorm."},
    {"post_attention_layernorm.", "pre_mlp_layernorm."},
    {"post_attention_norm.", "pre_mlp_layernorm."},
    {"attention.", "self_attention."},
    {"self_attention.query_key_value.", "self_attention.linear_qkv."},
    {"self_attention.dense.", "self_attention.linear_proj."},
    {"mlp.dense_h_to_4h.", "mlp.linear_fc1."},
    {"mlp.dense_4h_to_h.", "mlp.linear_fc2."},
};

constexpr std::string_view kLayers = "decoder.layers.";

// Every one that fits, in order.
template <size_t count>
void rename(std::string& name, const Renaming (&list)[count]) {
  for (const auto& [from, to] : list)
    if (name.starts_with(from)) name.replace(0, std::string_view(from).size(), to);
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

constexpr std::string_view kExperts = "mlp.experts.", kLocal = "mlp.experts.local_experts.";

// The number at the beginning of a text, and its digits; none: 0.
std::pair<int64_t, size_t> number_at(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  return {digits > 0 && digits < 10 ? std::atoll(std::string(text.substr(0, digits)).c_str()) : 0,
          digits < 10 ? digits : 0};
}

// Experts under numbers of their own ("mlp.experts.experts.7.linear_fc1.weight"), or as tensors of one layer
// ("mlp.experts.linear_fc1.weight7", Transformer Engine).
void rename_expert(std::string& rest) {
  if (!rest.starts_with(kExperts)) return;
  if (rest.starts_with(kStackedExperts)) {
    const std::string_view behind = std::string_view(rest).substr(std::string_view(kStackedExperts).size());
    const auto [expert, digits] = number_at(behind);
    if (digits > 0 && digits < behind.size() && behind[digits] == '.')
      rest = of_expert(expert, std::string(behind.substr(digits + 1)));
    return;
  }
  for (const std::string_view layer : {"linear_fc1.weight", "linear_fc2.weight"}) {
    const std::string_view behind = std::string_view(rest).substr(kExperts.size());
    if (!behind.starts_with(layer)) continue;
    const auto [expert, digits] = number_at(behind.substr(layer.size()));
    if (digits > 0 && layer.size() + digits == behind.size()) return void(rest = of_expert(expert, std::string(layer)));
  }
}

}  // namespace

std::string WeightName::full() const {
  if (!in_layers) return rest;
  return layer ? concat(kLayers, *layer, ".", rest) : concat(kLayers, rest);
}

std::optional<WeightName> weight_name(std::string name) {
  for (const std::string_view wrapper : {"module.", "model."})
    if (name.starts_with(wrapper)) name.erase(0, wrapper.size());
  if (name.starts_with("optimizer.") || name.starts_with("chained_") || contains(name, "_extra_state") ||
      contains(name, "rotary_pos_emb."))
    return std::nullopt;
  rename(name, kWhole);
  if (!name.starts_with(kLayers)) return WeightName{{}, std::move(name), false};
  WeightName weight{{}, name.substr(kLayers.size()), true};
  const size_t digits = weight.rest.find_first_not_of("0123456789");
  if (digits > 0 && digits < 10 && weight.rest[digits] == '.') {
    weight.layer = std::atoll(weight.rest.c_str());
    weight.rest.erase(0, digits + 1);
  }
  rename(weight.rest, kInLayer);
  rename_expert(weight.rest);
  return weight;
}

std::string of_expert(int64_t expert, const std::string& rest) { return concat(kLocal, expert, ".", rest); }

std::string_view in_mlp(std::string_view rest) {
  for (const std::string_view shared : {"mlp.shared_experts.", "mlp."})
    if (rest.starts_with(shared) && rest.substr(shared.size()).starts_with("linear_fc"))
      return rest.substr(shared.size());
  if (!rest.starts_with(kLocal)) return {};
  const std::string_view behind = rest.substr(kLocal.size());
  const size_t digits = number_at(behind).second;
  return digits > 0 && digits < behind.size() ? behind.substr(digits + 1) : std::string_view();
}

Cut cut_of(const WeightName& name, bool gated_mlp) {
  const std::string& rest = name.rest;
  if (!name.in_layers)
    return rest == "embedding.word_embeddings.weight" || rest == "output_layer.weight" ? Cut::rows : Cut::none;
  if (rest.starts_with("self_attention.linear_qkv.")) return Cut::rows;
  const std::string_view mlp = in_mlp(rest);
  if (mlp.starts_with("linear_fc1.")) return gated_mlp ? Cut::gated : Cut::rows;
  const bool columns = rest == "self_attention.linear_proj.weight" || mlp == "linear_fc2.weight";
  return columns ? Cut::columns : Cut::none;
}

}  // namespace drivetrain::megatron
