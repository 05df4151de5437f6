// Names of weights in checkpoints of Megatron-LM, of any age, as those that Megatron Core has today without Transformer
// Engine. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace drivetrain::megatron {

struct WeightName {
  std::optional<int64_t> layer;  // no value: of none, or of all layers, stacked along a first dimension
  std::string rest;              // of a layer: what follows its number, "mlp.linear_fc1.weight"; experts: of_expert
  bool in_layers = false;

  std::string full() const;  // "decoder.layers.3.mlp.linear_fc1.weight"
};

// No value: it is no weight (an optimizer's state, state of Transformer Engine, a table of rotary angles). A name that
// is not known stays as it is.
std::optional<WeightName> weight_name(std::string name);

// "mlp.experts.local_experts.7.linear_fc1.weight", of `rest` "linear_fc1.weight".
std::string of_expert(int64_t expert, const std::string& rest);
// Where the weights of all experts are stacked along a dimension (form torch_dist), what follows this beginning.
inline constexpr const char* kStackedExperts = "mlp.experts.experts.";
// Of a weight of any MLP of a layer, a shared or an expert's too, "linear_fc1.weight"; else "".
std::string_view in_mlp(std::string_view rest);

// How tensor parallelism cuts a weight over its ranks.
enum class Cut {
  none,     // every rank has the whole
  rows,     // of the first dimension
  columns,  // of the second
  gated,    // rows of two tensors, which stand one above the other on every rank
};
// `gated_mlp`: the MLP's first matrix has gate and up.
Cut cut_of(const WeightName& name, bool gated_mlp);

}  // namespace drivetrain::megatron
