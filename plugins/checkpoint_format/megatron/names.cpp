#include "names.h"

#include <cstdlib>
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
  return weight;
}

Cut cut_of(const WeightName& name, bool gated_mlp) {
  const std::string& rest = name.rest;
  if (!name.in_layers)
    return rest == "embedding.word_embeddings.weight" || rest == "output_layer.weight" ? Cut::rows : Cut::none;
  if (rest.starts_with("self_attention.linear_qkv.")) return Cut::rows;
  if (rest.starts_with("mlp.linear_fc1.")) return gated_mlp ? Cut::gated : Cut::rows;
  const bool columns = rest == "self_attention.linear_proj.weight" || rest == "mlp.linear_fc2.weight";
  return columns ? Cut::columns : Cut::none;
}

}  // namespace drivetrain::megatron
