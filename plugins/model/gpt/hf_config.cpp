#include "hf_config.h"

#include <drivetrain/error.h>

#include <algorithm>
#include <filesystem>

#include "hf_keys.h"
#include "hf_rope.h"

namespace drivetrain::gpt {
namespace {

constexpr Family kFamilies[] = {Family::gpt2, Family::llama, Family::mistral, Family::qwen2};
constexpr const char* kDtypes[] = {"float32", "bfloat16", "float16", "float64"};

void read_gpt2(const HfReader& reader, Shape& s) {
  s.groups = s.heads;
  if (s.heads < 1 || s.hidden % s.heads != 0)
    throw reader.wrong("n_head ", s.heads, " does not divide n_embd ", s.hidden);
  s.head_dim = s.hidden / s.heads;
  if (s.ffn == kDerived) s.ffn = 4 * std::min(s.hidden, int64_t{1} << 32);  // a wider one is refused by its shape
  const std::string activation = reader.text("activation_function", "gelu_new");
  reader.refuse_if(activation != "gelu_new" && activation != "gelu_pytorch_tanh" && activation != "gelu",
                   "activation_function", "known are gelu_new, gelu_pytorch_tanh and gelu");
  s.activation = activation == "gelu" ? "gelu" : "gelu_tanh";
}

// A window that no position is beyond cuts nothing off.
void check_window(const HfReader& reader, Family family, const Shape& s) {
  const char* const key = family == Family::qwen2 ? "use_sliding_window" : "sliding_window";
  const std::string whole =
      concat("every layer attends to the whole sequence, and max_position_embeddings is ", s.positions);
  const int64_t window = reader.integer("sliding_window", reader.is_null("sliding_window") ? INT64_MAX : 4096);
  const std::string cut = concat(whole, "\n   for sequences no longer than the window, set max_position_embeddings to ",
                                 window, " in a copy of the folder");
  const bool is_short = family != Family::llama && window < s.positions;
  bool cuts = is_short;
  if (family == Family::qwen2)
    cuts = cuts && reader.flag("use_sliding_window", false) && reader.integer("max_window_layers", 28) < s.layers;
  reader.refuse_if(cuts, key, cut);
  const Value* const types = reader.find("layer_types");
  for (size_t i = 0; types && i < types->items().size(); ++i) {
    const std::string& type = types->items()[i].as_string();
    const bool slides = type == "sliding_attention" && family != Family::llama;
    reader.refuse_if(type != "full_attention" && !slides, "layer_types", whole);
    reader.refuse_if(slides && is_short, "layer_types", cut);
  }
}

void read_llama(const HfReader& reader, Family family, Shape& s) {
  s.rms = s.rotary = true, s.bias = false, s.activation = "swiglu";
  if (s.groups == kDerived) s.groups = s.heads;
  if (s.head_dim == kDerived && (s.heads < 1 || s.hidden % s.heads != 0))
    throw reader.wrong("num_attention_heads ", s.heads, " does not divide hidden_size ", s.hidden,
                       " and there is no head_dim");
  if (s.head_dim == kDerived) s.head_dim = s.hidden / s.heads;
  s.scaling = read_rope(reader, s.positions);
  check_window(reader, family, s);
  if (family == Family::qwen2) s.qkv_bias = true;
  if (family != Family::llama) return;
  s.bias = reader.flag("attention_bias", false);
  if (s.bias != reader.flag("mlp_bias", false))
    throw reader.wrong("attention_bias is ", s.bias ? "true" : "false", " and mlp_bias is ", s.bias ? "false" : "true",
                       ": biases in only one of attention and MLP are not supported");
}

std::string read_dtype(const HfReader& reader) {
  const char* const key = reader.find("dtype") ? "dtype" : "torch_dtype";
  if (!reader.find(key)) return "";
  std::string name = reader.text(key, "");
  if (name.starts_with("torch.")) name.erase(0, 6);
  reader.refuse_if(std::find(std::begin(kDtypes), std::end(kDtypes), name) == std::end(kDtypes), key,
                   "known are float32, bfloat16, float16 and float64");
  return name;
}

Family family_named(const std::string& type, const std::string& path) {
  for (const Family family : kFamilies)
    if (type == model_type(family)) return family;
  throw fail(ErrorCode::config, "model/gpt: ", path, ": model_type is \"", type,
             "\"; known are gpt2, llama, mistral and qwen2");
}

void set_gpt2(const Shape& s, Value& c) {
  c.set("n_layer", s.layers), c.set("n_embd", s.hidden), c.set("n_head", s.heads), c.set("n_positions", s.positions);
  c.set("n_inner", s.ffn == 4 * s.hidden ? Value() : Value(s.ffn));
  c.set("activation_function", s.activation == "gelu" ? "gelu" : "gelu_new");
  c.set("layer_norm_epsilon", s.norm_epsilon);
  c.set("resid_pdrop", s.hidden_dropout), c.set("embd_pdrop", s.embedding_dropout),
      c.set("attn_pdrop", s.attention_dropout);
  c.set("scale_attn_weights", true), c.set("scale_attn_by_inverse_layer_idx", false);
  c.set("reorder_and_upcast_attn", false), c.set("add_cross_attention", false);
}

void set_llama(Family family, const Shape& s, Value& c) {
  c.set("num_hidden_layers", s.layers), c.set("hidden_size", s.hidden), c.set("num_attention_heads", s.heads);
  c.set("num_key_value_heads", s.groups), c.set("intermediate_size", s.ffn),
      c.set("max_position_embeddings", s.positions);
  // Qwen2 has the key only where it says something.
  if (family != Family::qwen2 || s.head_dim * s.heads != s.hidden) c.set("head_dim", s.head_dim);
  c.set("hidden_act", "silu"), c.set("rms_norm_eps", s.norm_epsilon), c.set("attention_dropout", s.attention_dropout);
  c.set("rope_parameters", rope_parameters(s.scaling));
  c.set("rope_theta", s.scaling.base), c.set("rope_scaling", scaling_value(s.scaling));  // transformers 4 reads these
  if (family == Family::llama) c.set("attention_bias", s.bias), c.set("mlp_bias", s.bias);
  if (family == Family::qwen2 && !c.find("use_sliding_window")) c.set("use_sliding_window", false);
}

const char* architecture(Family family) {
  switch (family) {
    case Family::gpt2:
      return "GPT2LMHeadModel";
    case Family::llama:
      return "LlamaForCausalLM";
    case Family::mistral:
      return "MistralForCausalLM";
    case Family::qwen2:
      return "Qwen2ForCausalLM";
  }
  return "";
}

}  // namespace

const char* model_type(Family family) {
  switch (family) {
    case Family::gpt2:
      return "gpt2";
    case Family::llama:
      return "llama";
    case Family::mistral:
      return "mistral";
    case Family::qwen2:
      return "qwen2";
  }
  return "";
}

std::optional<FolderConfig> read_folder(const std::string& folder) {
  const std::string path = folder + "/config.json";
  std::error_code unknown;
  if (!std::filesystem::is_directory(folder, unknown))
    throw fail(ErrorCode::config, "model/gpt: from names ", folder,
               ", which is not a folder; a Hugging Face model folder or a checkpoint was wanted");
  if (!std::filesystem::exists(path, unknown)) return std::nullopt;
  return parse_config(read_json_file(path), path);
}

FolderConfig parse_config(const Value& config, const std::string& path) {
  FolderConfig result{path, config, Family::gpt2, {}, {}, {}};
  const Value* const type = config.find("model_type");
  result.family = family_named(type && type->is_string() ? type->as_string() : "", path);
  const HfReader reader(result.config, path, result.family);
  Shape& s = result.shape;
  reader.read(s);
  if (result.family == Family::gpt2)
    read_gpt2(reader, s);
  else
    read_llama(reader, result.family, s);
  result.dtype = read_dtype(reader);
  result.unknown = reader.unknown();
  return result;
}

Family family_of(const Shape& s) {
  if (!s.rms && !s.rotary && !s.gated() && s.bias && s.groups == s.heads && s.head_dim * s.heads == s.hidden)
    return Family::gpt2;
  if (s.rms && s.rotary && s.gated() && s.qkv_bias && !s.bias) return Family::qwen2;
  if (s.rms && s.rotary && s.gated()) return Family::llama;
  throw fail(ErrorCode::config, "model/gpt: no Hugging Face family has normalization ", s.rms ? "rmsnorm" : "layernorm",
             ", position_embedding_type ", s.rotary ? "rope" : "learned", ", activation ", s.activation, ", add_bias ",
             s.bias ? "true" : "false", ", num_query_groups ", s.groups, " of ", s.heads, " heads and head size ",
             s.head_dim,
             " together, so these weights cannot be written as such a folder.\n"
             "   GPT-2: layernorm, learned, gelu_tanh or gelu, add_bias true, as many query groups as heads, head size "
             "hidden_size / heads\n"
             "   Llama and Qwen2: rmsnorm, rope, swiglu");
}

Value write_config(Family family, const Shape& s, const Value& base) {
  const bool fresh = !base.is_object();
  Value c = fresh ? Value::object() : base;
  const std::string dtype = read_dtype(HfReader(c, "config.json", family));
  for (const HfKey& row : hf_keys())
    if (const auto names = spellings(row.names); row.use == KeyUse::honoured && is_of(row, family))
      for (size_t i = 1; i < names.size(); ++i) c.erase(names[i]);
  c.set("model_type", model_type(family));
  c.set("architectures", Value::Array{architecture(family)});
  for (const char* const key : {"dtype", "torch_dtype"}) c.set(key, dtype.empty() ? "float32" : dtype);
  c.set("vocab_size", s.vocab), c.set("initializer_range", s.init_std), c.set("tie_word_embeddings", s.tied);
  if (family == Family::gpt2)
    set_gpt2(s, c);
  else
    set_llama(family, s, c);
  // Which tokens begin and end a text, the run's tokenizer knows; transformers' own defaults may lie outside.
  if (fresh)
    for (const char* const key : {"bos_token_id", "eos_token_id", "pad_token_id"}) c.set(key, Value());
  if (fresh) c.set("use_cache", true);
  auto& members = c.members();
  std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  return c;
}

}  // namespace drivetrain::gpt
