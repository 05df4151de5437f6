#include "shape.h"

#include <drivetrain/error.h>

#include "hf_rope.h"

namespace drivetrain::gpt {
namespace {

constexpr int64_t kLargestSize = (int64_t{1} << 31) - 1;
// Each layer costs a plan some kilobytes before anything is trained, and nobody has trained so many.
constexpr int64_t kMostLayers = 10000;
constexpr double kMostParameters = 1e15;  // products of sizes stay far from overflow

// Collects what is wrong, so that all of it is told at once.
class ShapeProblems {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    text_ += concat("\n   ", parts...);
  }
  void throw_if_any(const std::string& head) const {
    if (!text_.empty()) throw fail(ErrorCode::config, "model/gpt: ", head, text_);
  }

 private:
  std::string text_;
};

void check(const Shape& s, const std::string& where) {
  ShapeProblems wrong;
  const std::pair<const char*, int64_t> sizes[] = {
      {"num_layers", s.layers},         {"hidden_size", s.hidden},
      {"num_attention_heads", s.heads}, {"num_query_groups", s.groups},
      {"kv_channels", s.head_dim},      {"ffn_hidden_size", s.ffn},
      {"vocab_size", s.vocab},          {"max_position_embeddings", s.positions}};
  for (const auto& [name, size] : sizes)
    if (size < 1 || size > kLargestSize) wrong.add(name, " is ", size, "; it must be from 1 to ", kLargestSize);
  if (s.layers > kMostLayers && s.layers <= kLargestSize)
    wrong.add("num_layers is ", s.layers, "; it must be from 1 to ", kMostLayers);
  const double width = static_cast<double>(s.hidden), layers = static_cast<double>(s.layers);
  const double heads =
      (2.0 * static_cast<double>(s.heads) + 2.0 * static_cast<double>(s.groups)) * static_cast<double>(s.head_dim);
  const double rows = layers * (heads + 3.0 * static_cast<double>(s.ffn)) + 2.0 * static_cast<double>(s.vocab) +
                      static_cast<double>(s.positions);
  if (width * rows > kMostParameters)
    wrong.add("these sizes make about ", width * rows, " parameters; more than ", kMostParameters,
              " cannot be counted");
  if (s.heads > 0 && s.groups > 0 && s.heads % s.groups != 0)
    wrong.add("num_query_groups ", s.groups, " does not divide num_attention_heads ", s.heads,
              ": every key/value head serves the same number of query heads");
  if (s.rotary && s.head_dim % 2 != 0)
    wrong.add("the head dimension (kv_channels) is ", s.head_dim,
              ", but position_embedding_type rope turns pairs: make it even");
  wrong.throw_if_any(where);
}

int64_t default_head_dim(const Options& o) {
  const int64_t hidden = *o.hidden_size, heads = *o.num_attention_heads;
  if (heads > 0 && hidden % heads != 0)
    throw fail(ErrorCode::config, "model/gpt: num_attention_heads ", heads, " does not divide hidden_size ", hidden,
               ". Change one of them, or set kv_channels (the head dimension)");
  return heads > 0 ? hidden / heads : 0;
}

// Megatron's rule: 4 h, or for gated activations two thirds of it in steps of 64.
int64_t default_ffn(int64_t hidden, bool gated) {
  if (hidden > kLargestSize) return 1;  // refused by `check`
  if (!gated) return 4 * hidden;
  const int64_t ffn = hidden * 8 / 3 / 64 * 64;
  if (ffn == 0)
    throw fail(ErrorCode::config, "model/gpt: ffn_hidden_size has no default for swiglu with hidden_size ", hidden,
               "; set it");
  return ffn;
}

// Null: as it is.
void read_scaling_option(const Options& o, Shape& s) {
  if (o.rope_scaling.is_null()) return;
  if (!s.rotary)
    throw fail(ErrorCode::config,
               "model/gpt: rope_scaling is set, but position_embedding_type is learned; set it to rope");
  const double base = s.scaling.base;
  s.scaling = read_scaling(o.rope_scaling, s.scaling, s.positions, "rope_scaling");
  if (s.scaling.base != base)
    throw fail(ErrorCode::config, "model/gpt: rope_scaling has rope_theta ", s.scaling.base, ", and rotary_base is ",
               base, "; leave rope_theta out");
}

template <class T>
std::string shown(const T& value) {
  return Value(value).to_json();
}

template <class T>
void compare(ShapeProblems& wrong, const char* name, const std::optional<T>& given, const T& folder) {
  if (given && *given != folder)
    wrong.add(name, " is ", shown(*given), " in the options, ", shown(folder), " in the folder");
}

}  // namespace

TableBuilder<Options> option_table() {
  using O = Options;
  return table<O>()
      .field(
          "from", &O::from,
          "folder of the initial weights: a Hugging Face folder (GPT-2, Llama, Mistral, Qwen2), which gives the shape "
          "too, or a checkpoint of this or another program")
      .path()
      .field("num_layers", &O::num_layers, "blocks")
      .alias("n_layer")
      .alias("num_hidden_layers")
      .range(1, kMostLayers)
      .field("hidden_size", &O::hidden_size, "width of the residual stream")
      .alias("n_embd")
      .range(1, kLargestSize)
      .field("num_attention_heads", &O::num_attention_heads, "query heads")
      .alias("n_head")
      .range(1, kLargestSize)
      .field("num_query_groups", &O::num_query_groups, "key/value heads; default: as many as query heads")
      .alias("num_key_value_heads")
      .range(1, kLargestSize)
      .field("kv_channels", &O::kv_channels, "size of a head; default: hidden_size / num_attention_heads")
      .alias("head_dim")
      .range(1, kLargestSize)
      .field("ffn_hidden_size", &O::ffn_hidden_size,
             "inner width of the MLP; default: 4 x hidden_size, for swiglu 8/3 in steps of 64")
      .alias("n_inner")
      .alias("intermediate_size")
      .range(1, kLargestSize)
      .field("vocab_size", &O::vocab_size, "tokens")
      .range(1, kLargestSize)
      .field("max_position_embeddings", &O::max_position_embeddings, "longest sequence")
      .alias("n_positions")
      .alias("n_ctx")
      .range(1, kLargestSize)
      .field("normalization", &O::normalization, "default: layernorm")
      .one_of({"layernorm", "rmsnorm"})
      .field("norm_epsilon", &O::norm_epsilon, "added to the variance; default: 1e-5")
      .alias("layer_norm_epsilon")
      .alias("layernorm_epsilon")
      .alias("rms_norm_eps")
      .range(0, 1)
      .field("activation", &O::activation, "default: gelu_tanh")
      .one_of({"gelu_tanh", "gelu", "swiglu"})
      .field("position_embedding_type", &O::position_embedding_type, "default: learned")
      .one_of({"learned", "rope"})
      .field("rotary_base", &O::rotary_base, "slowest wavelength of rope; default: 10000")
      .alias("rope_theta")
      .range(1, 1e12)
      .field("rope_scaling", &O::rope_scaling,
             "how rope is stretched, as config.json has it: {rope_type: llama3, factor, low_freq_factor, "
             "high_freq_factor, original_max_position_embeddings}; default: not")
      .field("add_bias", &O::add_bias, "biases in all linear layers; default: true")
      .field("add_qkv_bias", &O::add_qkv_bias,
             "a bias in the q, k, v layer even without add_bias (Qwen2); default: false")
      .field("untie_embeddings_and_output_weights", &O::untie_embeddings_and_output_weights,
             "an output layer of its own instead of the embedding's matrix; default: false")
      .field("init_method_std", &O::init_method_std,
             "of initial matrices; output projections get it / sqrt(2 layers); default: 0.02")
      .alias("initializer_range")
      .range(0, 100)
      .field("hidden_dropout", &O::hidden_dropout,
             "after the embedding and on both branches of a block; default: 0, or the folder's")
      .alias("resid_pdrop")
      .range(0, 1)
      .field("attention_dropout", &O::attention_dropout, "on attention probabilities; default: 0, or the folder's")
      .alias("attn_pdrop")
      .range(0, 1);
}

int64_t Shape::matrix_parameters() const {
  const int64_t attention = hidden * qkv_width() + heads * head_dim * hidden;
  return layers * (attention + hidden * fc_width() + ffn * hidden) + hidden * vocab;
}

int64_t Shape::parameters() const {
  const int64_t norm = rms ? hidden : 2 * hidden;
  const int64_t biases = (any_qkv_bias() ? qkv_width() : 0) + (bias ? 2 * hidden + fc_width() : 0);
  const int64_t embeddings = (tied ? 0 : vocab * hidden) + (rotary ? 0 : positions * hidden);
  return matrix_parameters() + embeddings + layers * (2 * norm + biases) + norm;
}

Shape shape_from_options(const Options& o) {
  ShapeProblems missing;
  const std::pair<const char*, const std::optional<int64_t>*> required[] = {
      {"num_layers", &o.num_layers},
      {"hidden_size", &o.hidden_size},
      {"num_attention_heads", &o.num_attention_heads},
      {"vocab_size", &o.vocab_size},
      {"max_position_embeddings", &o.max_position_embeddings}};
  for (const auto& [name, value] : required)
    if (!*value) missing.add(name);
  missing.throw_if_any(o.from
                           ? concat("from names ", *o.from,
                                    ", which has no config.json, so it gives weights and no sizes; these are missing:")
                           : "these options are missing (or give \"from\", a Hugging Face folder):");

  Shape s;
  s.layers = *o.num_layers, s.hidden = *o.hidden_size, s.heads = *o.num_attention_heads;
  s.vocab = *o.vocab_size, s.positions = *o.max_position_embeddings;
  s.groups = o.num_query_groups.value_or(s.heads);
  s.head_dim = o.kv_channels ? *o.kv_channels : default_head_dim(o);
  s.rms = o.normalization.value_or("layernorm") == "rmsnorm";
  s.norm_epsilon = o.norm_epsilon.value_or(s.norm_epsilon);
  s.activation = o.activation.value_or(s.activation);
  s.ffn = o.ffn_hidden_size ? *o.ffn_hidden_size : default_ffn(s.hidden, s.gated());
  s.rotary = o.position_embedding_type.value_or("learned") == "rope";
  if (o.rotary_base && !s.rotary)
    throw fail(ErrorCode::config,
               "model/gpt: rotary_base is set, but position_embedding_type is learned; set it to rope");
  s.scaling.base = o.rotary_base.value_or(s.scaling.base);
  read_scaling_option(o, s);
  s.bias = o.add_bias.value_or(true);
  s.qkv_bias = o.add_qkv_bias.value_or(false);
  s.tied = !o.untie_embeddings_and_output_weights.value_or(false);
  s.init_std = o.init_method_std.value_or(s.init_std);
  s.hidden_dropout = s.embedding_dropout = o.hidden_dropout.value_or(0);
  s.attention_dropout = o.attention_dropout.value_or(0);
  check(s, "options that do not fit each other:");
  return s;
}

Shape shape_from_folder(const Options& o, const Shape& folder, const std::string& config_path) {
  check(folder, config_path + ": a shape that cannot be:");
  ShapeProblems wrong;
  compare(wrong, "num_layers", o.num_layers, folder.layers);
  compare(wrong, "hidden_size", o.hidden_size, folder.hidden);
  compare(wrong, "num_attention_heads", o.num_attention_heads, folder.heads);
  compare(wrong, "num_query_groups", o.num_query_groups, folder.groups);
  compare(wrong, "kv_channels", o.kv_channels, folder.head_dim);
  compare(wrong, "ffn_hidden_size", o.ffn_hidden_size, folder.ffn);
  compare(wrong, "vocab_size", o.vocab_size, folder.vocab);
  compare(wrong, "max_position_embeddings", o.max_position_embeddings, folder.positions);
  compare<std::string>(wrong, "normalization", o.normalization, folder.rms ? "rmsnorm" : "layernorm");
  compare(wrong, "norm_epsilon", o.norm_epsilon, folder.norm_epsilon);
  compare(wrong, "activation", o.activation, folder.activation);
  compare<std::string>(wrong, "position_embedding_type", o.position_embedding_type, folder.rotary ? "rope" : "learned");
  if (folder.rotary)
    compare(wrong, "rotary_base", o.rotary_base, folder.scaling.base);
  else if (o.rotary_base)
    wrong.add("rotary_base is set in the options, the folder has learned positions");
  Shape stretched = folder;
  read_scaling_option(o, stretched);
  if (!(scaling_value(stretched.scaling) == scaling_value(folder.scaling)))
    wrong.add("rope_scaling is ", o.rope_scaling.to_json(), " in the options, ",
              scaling_value(folder.scaling).to_json(), " in the folder");
  compare(wrong, "add_bias", o.add_bias, folder.bias);
  compare(wrong, "add_qkv_bias", o.add_qkv_bias, folder.qkv_bias);
  compare(wrong, "untie_embeddings_and_output_weights", o.untie_embeddings_and_output_weights, !folder.tied);
  wrong.throw_if_any(concat("options contradict ", config_path, " (leave them out beside \"from\"):"));

  Shape s = folder;
  s.init_std = o.init_method_std.value_or(s.init_std);
  if (o.hidden_dropout) s.hidden_dropout = s.embedding_dropout = *o.hidden_dropout;
  s.attention_dropout = o.attention_dropout.value_or(s.attention_dropout);
  return s;
}

void fill_in(Options& o, const Shape& s) {
  const auto fill = [](auto& option, auto value) {
    if (!option) option = value;
  };
  fill(o.num_layers, s.layers), fill(o.hidden_size, s.hidden), fill(o.num_attention_heads, s.heads);
  fill(o.num_query_groups, s.groups), fill(o.kv_channels, s.head_dim), fill(o.ffn_hidden_size, s.ffn);
  fill(o.vocab_size, s.vocab), fill(o.max_position_embeddings, s.positions);
  fill(o.normalization, s.rms ? "rmsnorm" : "layernorm"), fill(o.norm_epsilon, s.norm_epsilon);
  fill(o.activation, s.activation), fill(o.position_embedding_type, s.rotary ? "rope" : "learned");
  if (s.rotary) fill(o.rotary_base, s.scaling.base);
  if (s.rotary && o.rope_scaling.is_null()) o.rope_scaling = scaling_value(s.scaling);
  fill(o.add_bias, s.bias), fill(o.add_qkv_bias, s.qkv_bias), fill(o.untie_embeddings_and_output_weights, !s.tied);
  fill(o.init_method_std, s.init_std), fill(o.attention_dropout, s.attention_dropout);
  // A folder may have two rates where we have one option: then they stay the folder's.
  if (s.hidden_dropout == s.embedding_dropout) fill(o.hidden_dropout, s.hidden_dropout);
}

}  // namespace drivetrain::gpt
