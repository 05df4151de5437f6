// What a GPT looks like: the options people write, and the complete shape that comes out of them or of a Hugging Face
// folder. Value types. Errors: config, naming options and values.
#pragma once

#include <optional>
#include <string>

#include <drivetrain/options.h>

namespace drivetrain::gpt {

// Rotary angles per token: base^(-2i/d), or these stretched for long context.
struct RotaryScaling {
  double base = 10000;
  bool llama3 = false;  // else none of the following counts
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_positions = 0;
};

struct Shape {
  int64_t layers = 0, hidden = 0, heads = 0, groups = 0, head_dim = 0, ffn = 0, vocab = 0, positions = 0;
  bool rms = false, rotary = false, bias = true, qkv_bias = false, tied = true;
  std::string activation = "gelu_tanh";
  double norm_epsilon = 1e-5, init_std = 0.02;
  double embedding_dropout = 0, hidden_dropout = 0, attention_dropout = 0;
  RotaryScaling scaling;

  bool gated() const { return activation == "swiglu"; }
  bool any_qkv_bias() const { return bias || qkv_bias; }
  int64_t qkv_width() const { return (heads + 2 * groups) * head_dim; }
  int64_t fc_width() const { return gated() ? 2 * ffn : ffn; }
  int64_t matrix_parameters() const;  // that every token is multiplied with, output layer included
  int64_t parameters() const;         // all of them, a tied one once
};

// Megatron's names; config.json's are aliases. Empty: from the folder, or the default.
struct Options {
  std::optional<std::string> from;
  std::optional<int64_t> num_layers, hidden_size, num_attention_heads, num_query_groups, kv_channels, ffn_hidden_size;
  std::optional<int64_t> vocab_size, max_position_embeddings;
  std::optional<std::string> normalization, activation, position_embedding_type;
  std::optional<double> norm_epsilon, rotary_base, init_method_std, hidden_dropout, attention_dropout;
  Value rope_scaling;
  std::optional<bool> add_bias, add_qkv_bias, untie_embeddings_and_output_weights;
};
TableBuilder<Options> option_table();
// What the options left open, as the shape has it.
void fill_in(Options& options, const Shape& shape);

// The shape that the options describe without a folder.
Shape shape_from_options(const Options& options);
// Options given beside a folder must say what it says. Dropout and initial values are the run's own and replace the
// folder's.
Shape shape_from_folder(const Options& options, const Shape& folder, const std::string& config_path);

}  // namespace drivetrain::gpt
