#include "hf_config.h"

#include <drivetrain/error.h>

#include <algorithm>
#include <filesystem>

namespace drivetrain::gpt {
namespace {

using Names = std::initializer_list<const char*>;

// A config.json being read; remembers its file for messages. A null counts as absent, as it does for transformers.
class Keys {
 public:
  Keys(const Value& config, std::string path) : config_(config), path_(std::move(path)) {}

  const Value* find(Names names) const {
    for (const char* name : names)
      if (const Value* v = config_.find(name); v && !v->is_null()) return v;
    return nullptr;
  }
  int64_t integer(Names names) const {
    if (const Value* v = find(names)) return v->as_int();
    throw wrong("has no \"", *names.begin(), "\"");
  }
  int64_t integer(Names names, int64_t fallback) const { return find(names) ? find(names)->as_int() : fallback; }
  double number(Names names, double fallback) const { return find(names) ? find(names)->as_double() : fallback; }
  bool flag(const char* name, bool fallback) const { return find({name}) ? find({name})->as_bool() : fallback; }
  std::string text(Names names, const char* fallback) const {
    return find(names) ? find(names)->as_string() : fallback;
  }

  void refuse_if(bool bad, const char* key, const std::string& why) const {
    if (bad) throw wrong("\"", key, "\": ", find({key}) ? find({key})->to_json() : "null", " is not supported: ", why);
  }
  template <class... Parts>
  Error wrong(const Parts&... parts) const {
    return fail(ErrorCode::config, "model/gpt: ", path_, ": ", parts...);
  }

 private:
  const Value& config_;
  const std::string path_;
};

Shape read_gpt2(const Keys& keys) {
  Shape s;
  s.layers = keys.integer({"n_layer", "num_hidden_layers"});
  s.hidden = keys.integer({"n_embd", "hidden_size"});
  s.heads = s.groups = keys.integer({"n_head", "num_attention_heads"});
  if (s.heads < 1 || s.hidden % s.heads != 0)
    throw keys.wrong("n_head ", s.heads, " does not divide n_embd ", s.hidden);
  s.head_dim = s.hidden / s.heads;
  s.ffn = keys.integer({"n_inner"}, 4 * std::min(s.hidden, int64_t{1} << 32));  // a wider one is refused by its shape
  s.vocab = keys.integer({"vocab_size"});
  s.positions = keys.integer({"n_positions", "n_ctx", "max_position_embeddings"});
  s.norm_epsilon = keys.number({"layer_norm_epsilon"}, 1e-5);
  s.init_std = keys.number({"initializer_range"}, 0.02);
  s.hidden_dropout = keys.number({"resid_pdrop"}, 0.1);
  s.embedding_dropout = keys.number({"embd_pdrop"}, 0.1);
  s.attention_dropout = keys.number({"attn_pdrop"}, 0.1);
  s.tied = keys.flag("tie_word_embeddings", true);
  const std::string activation = keys.text({"activation_function"}, "gelu_new");
  keys.refuse_if(activation != "gelu_new" && activation != "gelu_pytorch_tanh" && activation != "gelu",
                 "activation_function", "known are gelu_new, gelu_pytorch_tanh and gelu");
  s.activation = activation == "gelu" ? "gelu" : "gelu_tanh";
  keys.refuse_if(keys.flag("scale_attn_by_inverse_layer_idx", false), "scale_attn_by_inverse_layer_idx",
                 "attention is scaled by 1 / sqrt(head size) in every block");
  keys.refuse_if(!keys.flag("scale_attn_weights", true), "scale_attn_weights",
                 "attention is always scaled by 1 / sqrt(head size)");
  keys.refuse_if(keys.flag("add_cross_attention", false), "add_cross_attention", "there is no encoder to attend to");
  return s;
}

void read_rotary(const Keys& keys, const std::string& path, Shape& s) {
  s.rotary = true;
  keys.refuse_if(keys.number({"partial_rotary_factor"}, 1) != 1, "partial_rotary_factor",
                 "rotary embeddings turn whole heads");
  s.scaling.base = keys.number({"rope_theta"}, 10000);
  const Value* group = keys.find({"rope_parameters", "rope_scaling"});
  if (!group) return;
  if (!group->is_object())
    throw keys.wrong("rope_parameters is ", group->to_json(), "; it has to be an object or null");
  const Keys rope(*group, path + " (rope_parameters)");
  s.scaling.base = rope.number({"rope_theta"}, s.scaling.base);
  rope.refuse_if(rope.number({"partial_rotary_factor"}, 1) != 1, "partial_rotary_factor",
                 "rotary embeddings turn whole heads");
  const std::string type = rope.text({"rope_type", "type"}, "default");
  if (type == "default") return;
  if (type != "llama3") throw rope.wrong("rope_type \"", type, "\" is not supported; known are default and llama3");
  s.scaling.llama3 = true;
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"})
    if (!rope.find({key})) throw rope.wrong("rope_type llama3 needs \"", key, "\"");
  s.scaling.factor = rope.number({"factor"}, 0);
  s.scaling.low_freq_factor = rope.number({"low_freq_factor"}, 0);
  s.scaling.high_freq_factor = rope.number({"high_freq_factor"}, 0);
  s.scaling.original_positions = rope.integer({"original_max_position_embeddings"}, s.positions);
  if (s.scaling.factor < 1 || s.scaling.low_freq_factor <= 0 || s.scaling.high_freq_factor <= s.scaling.low_freq_factor)
    throw rope.wrong("rope_type llama3 needs factor >= 1 and 0 < low_freq_factor < high_freq_factor");
}

Shape read_llama(const Keys& keys, const std::string& path) {
  Shape s;
  s.rms = true, s.bias = false, s.activation = "swiglu";
  s.layers = keys.integer({"num_hidden_layers"});
  s.hidden = keys.integer({"hidden_size"});
  s.heads = keys.integer({"num_attention_heads"});
  s.groups = keys.integer({"num_key_value_heads"}, s.heads);
  if (!keys.find({"head_dim"}) && (s.heads < 1 || s.hidden % s.heads != 0))
    throw keys.wrong("num_attention_heads ", s.heads, " does not divide hidden_size ", s.hidden,
                     " and there is no head_dim");
  s.head_dim = keys.find({"head_dim"}) ? keys.integer({"head_dim"}) : s.hidden / s.heads;
  s.ffn = keys.integer({"intermediate_size"});
  s.vocab = keys.integer({"vocab_size"});
  s.positions = keys.integer({"max_position_embeddings"});
  s.norm_epsilon = keys.number({"rms_norm_eps"}, 1e-6);
  s.init_std = keys.number({"initializer_range"}, 0.02);
  s.attention_dropout = keys.number({"attention_dropout"}, 0);
  s.tied = keys.flag("tie_word_embeddings", false);
  const std::string activation = keys.text({"hidden_act"}, "silu");
  keys.refuse_if(activation != "silu" && activation != "swish", "hidden_act", "the gated MLP uses silu");
  read_rotary(keys, path, s);
  return s;
}

void read_llama_biases(const Keys& keys, Shape& s) {
  s.bias = keys.flag("attention_bias", false);
  if (s.bias != keys.flag("mlp_bias", false))
    throw keys.wrong("attention_bias is ", s.bias ? "true" : "false", " and mlp_bias is ", s.bias ? "false" : "true",
                     ": biases in only one of attention and MLP are not supported");
}

void read_qwen2_biases(const Keys& keys, Shape& s) {
  s.qkv_bias = true;
  keys.refuse_if(keys.flag("use_sliding_window", false), "use_sliding_window",
                 "every layer attends to the whole sequence");
  if (const Value* types = keys.find({"layer_types"}))
    for (const Value& type : types->items())
      keys.refuse_if(type.as_string() != "full_attention", "layer_types", "every layer attends to the whole sequence");
}

Value rope_parameters(const RotaryScaling& r) {
  Value rope = Value::object();
  if (r.llama3) {
    rope.set("factor", r.factor);
    rope.set("high_freq_factor", r.high_freq_factor);
    rope.set("low_freq_factor", r.low_freq_factor);
    rope.set("original_max_position_embeddings", r.original_positions);
  }
  rope.set("rope_theta", r.base);
  rope.set("rope_type", r.llama3 ? "llama3" : "default");
  return rope;
}

void set_gpt2(const Shape& s, Value& c) {
  for (const char* other :
       {"n_ctx", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"})
    c.erase(other);
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
  for (const char* old : {"rope_theta", "rope_scaling"}) c.erase(old);
  c.set("num_hidden_layers", s.layers), c.set("hidden_size", s.hidden), c.set("num_attention_heads", s.heads);
  c.set("num_key_value_heads", s.groups), c.set("intermediate_size", s.ffn),
      c.set("max_position_embeddings", s.positions);
  // Qwen2 has the key only where it says something.
  if (family == Family::llama || s.head_dim * s.heads != s.hidden) c.set("head_dim", s.head_dim);
  c.set("hidden_act", "silu"), c.set("rms_norm_eps", s.norm_epsilon), c.set("attention_dropout", s.attention_dropout);
  c.set("rope_parameters", rope_parameters(s.scaling));
  if (family == Family::llama)
    c.set("attention_bias", s.bias), c.set("mlp_bias", s.bias);
  else
    c.set("use_sliding_window", false);
}

}  // namespace

const char* model_type(Family family) {
  switch (family) {
    case Family::gpt2:
      return "gpt2";
    case Family::llama:
      return "llama";
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
  FolderConfig result{path, config, Family::gpt2, {}};
  const Keys keys(result.config, path);
  keys.refuse_if(keys.find({"quantization_config"}), "quantization_config",
                 "weights must be float32, bfloat16 or float16");
  const std::string type = keys.text({"model_type"}, "");
  if (type == "gpt2") {
    result.shape = read_gpt2(keys);
  } else if (type == "llama") {
    result.family = Family::llama;
    result.shape = read_llama(keys, path);
    read_llama_biases(keys, result.shape);
  } else if (type == "qwen2") {
    result.family = Family::qwen2;
    result.shape = read_llama(keys, path);
    read_qwen2_biases(keys, result.shape);
  } else {
    throw keys.wrong("model_type is \"", type, "\"; known are gpt2, llama and qwen2");
  }
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
  c.set("model_type", model_type(family));
  c.set("architectures", Value::Array{family == Family::gpt2    ? "GPT2LMHeadModel"
                                      : family == Family::llama ? "LlamaForCausalLM"
                                                                : "Qwen2ForCausalLM"});
  c.erase("torch_dtype");
  c.set("dtype", "float32");
  c.set("vocab_size", s.vocab), c.set("initializer_range", s.init_std), c.set("tie_word_embeddings", s.tied);
  if (family == Family::gpt2)
    set_gpt2(s, c);
  else
    set_llama(family, s, c);
  if (fresh) {
    // Byte vocabularies end documents with byte 0; of others we know nothing, and transformers' own defaults may lie
    // outside.
    const Value end = s.vocab <= 512 ? Value(0) : Value();
    c.set("bos_token_id", end), c.set("eos_token_id", end), c.set("pad_token_id", Value()), c.set("use_cache", true);
  }
  auto& members = c.members();
  std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  return c;
}

}  // namespace drivetrain::gpt
