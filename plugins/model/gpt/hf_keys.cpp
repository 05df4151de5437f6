// Source: transformers, configuration_utils.py and models/{gpt2,llama,mistral,qwen2}/configuration_*.py of 4.57 and 5.
#include "hf_keys.h"

#include <algorithm>

namespace drivetrain::gpt {
namespace {

using S = Shape;
constexpr const char* kAll = "glmq";
constexpr const char* kLlamas = "lmq";
constexpr const char* kScale = "attention is scaled by 1 / sqrt(head size) in every block";
constexpr const char* kWhole = "every layer attends to the whole sequence";
constexpr const char* kTurns = "rotary embeddings turn whole heads";

std::vector<HfKey> make_keys() {
  constexpr std::monostate code;
  constexpr Use honoured = Use::honoured, refused = Use::refused, no_effect = Use::no_effect;
  return {
      {{"model_type"}, kAll, honoured, code, "", "which family"},
      {{"vocab_size"}, kAll, honoured, &S::vocab, "", ""},
      {{"tie_word_embeddings"}, "g", honoured, &S::tied, "true", ""},
      {{"tie_word_embeddings"}, kLlamas, honoured, &S::tied, "false", ""},
      {{"initializer_range"}, kAll, honoured, &S::init_std, "0.02", "of values that no file gives"},
      {{"dtype", "torch_dtype"}, kAll, honoured, code, "derived", "the type of exported weights (`save_dtype`)"},

      {{"n_layer", "num_hidden_layers"}, "g", honoured, &S::layers, "", ""},
      {{"n_embd", "hidden_size"}, "g", honoured, &S::hidden, "", ""},
      {{"n_head", "num_attention_heads"}, "g", honoured, &S::heads, "", ""},
      {{"n_positions", "n_ctx", "max_position_embeddings"}, "g", honoured, &S::positions, "", ""},
      {{"n_inner"}, "g", honoured, &S::ffn, "derived", "absent or null: 4 times n_embd"},
      {{"activation_function"}, "g", honoured, code, "\"gelu_new\"", "gelu_new, gelu_pytorch_tanh or gelu"},
      {{"layer_norm_epsilon"}, "g", honoured, &S::norm_epsilon, "1e-5", ""},
      {{"resid_pdrop"}, "g", honoured, &S::hidden_dropout, "0.1", ""},
      {{"embd_pdrop"}, "g", honoured, &S::embedding_dropout, "0.1", ""},
      {{"attn_pdrop"}, "g", honoured, &S::attention_dropout, "0.1", ""},
      {{"scale_attn_weights"}, "g", refused, code, "[true]", "attention is always scaled by 1 / sqrt(head size)"},
      {{"scale_attn_by_inverse_layer_idx"}, "g", refused, code, "[false]", kScale},
      {{"add_cross_attention"}, kAll, refused, code, "[false]", "there is no encoder to attend to"},
      {{"is_encoder_decoder"}, kAll, refused, code, "[false]", "there is no encoder to attend to"},
      {{"pruned_heads"}, kAll, refused, code, "[{}, []]", "all blocks have the same number of heads"},
      {{"quantization_config"}, kAll, refused, code, "[]", "weights must be float32, bfloat16 or float16"},

      {{"num_hidden_layers"}, kLlamas, honoured, &S::layers, "", ""},
      {{"hidden_size"}, kLlamas, honoured, &S::hidden, "", ""},
      {{"num_attention_heads"}, kLlamas, honoured, &S::heads, "", ""},
      {{"num_key_value_heads"}, "l", honoured, &S::groups, "derived", "null: as many as heads"},
      {{"num_key_value_heads"}, "m", honoured, &S::groups, "8", "null: as many as heads"},
      {{"num_key_value_heads"}, "q", honoured, &S::groups, "32", "null: as many as heads"},
      {{"head_dim"}, kLlamas, honoured, &S::head_dim, "derived", "absent or null: hidden_size / num_attention_heads"},
      {{"intermediate_size"}, kLlamas, honoured, &S::ffn, "", ""},
      {{"max_position_embeddings"}, kLlamas, honoured, &S::positions, "", ""},
      {{"rms_norm_eps"}, kLlamas, honoured, &S::norm_epsilon, "1e-6", ""},
      {{"attention_dropout"}, kLlamas, honoured, &S::attention_dropout, "0", ""},
      {{"rope_parameters", "rope_scaling"}, kLlamas, honoured, code, "derived", "rope_type default or llama3"},
      {{"rope_theta"}, kLlamas, honoured, code, "10000", "the same as in rope_parameters"},
      {{"partial_rotary_factor"}, kLlamas, refused, code, "[1]", kTurns},
      {{"hidden_act"}, kLlamas, refused, code, "[\"silu\", \"swish\"]", "the gated MLP uses silu"},
      {{"attention_bias"}, "l", honoured, code, "false", "as mlp_bias, or refused"},
      {{"mlp_bias"}, "l", honoured, code, "false", "as attention_bias, or refused"},
      {{"sliding_window"}, "m", refused, code, "", "4096 where absent; null, or no position beyond it"},
      {{"use_sliding_window"}, "q", refused, code, "", "true only where no position is beyond the window"},
      {{"sliding_window"}, "q", refused, code, "", "of use_sliding_window"},
      {{"max_window_layers"}, "q", refused, code, "", "of use_sliding_window"},
      {{"layer_types"}, kLlamas, refused, code, "", kWhole},

      {{"reorder_and_upcast_attn"}, "g", no_effect, code, "", "precision of attention"},
      {{"summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout"},
       "g",
       no_effect,
       code,
       "",
       "of a classifier"},
      {{"pretraining_tp"}, kLlamas, no_effect, code, "", "cuts products and adds the parts"},
      {{"architectures"}, kAll, no_effect, code, "", "tensors show it"},
      {{"transformers_version"}, kAll, no_effect, code, "", "who wrote the file"},
      {{"use_cache",
        "task_specific_params",
        "max_length",
        "min_length",
        "do_sample",
        "early_stopping",
        "num_beams",
        "num_beam_groups",
        "diversity_penalty",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
        "repetition_penalty",
        "length_penalty",
        "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size",
        "bad_words_ids",
        "num_return_sequences",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "remove_invalid_values",
        "exponential_decay_length_penalty",
        "suppress_tokens",
        "begin_suppress_tokens"},
       kAll,
       no_effect,
       code,
       "",
       "of generation"},
      {{"bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id"}, kAll, no_effect, code, "", "kept for export"},
      {{"decoder_start_token_id", "cross_attention_hidden_size", "tie_encoder_decoder"},
       kAll,
       no_effect,
       code,
       "",
       "of an encoder's decoder"},
      {{"is_decoder"}, kAll, no_effect, code, "", "every model here is causal"},
      {{"tokenizer_class", "prefix"}, kAll, no_effect, code, "", "of the tokenizer"},
      {{"chunk_size_feed_forward"}, kAll, no_effect, code, "", "cuts the MLP's rows"},
      {{"id2label", "label2id", "num_labels", "classifier_dropout", "problem_type", "finetuning_task"},
       kAll,
       no_effect,
       code,
       "",
       "of a classifier"},
      {{"output_attentions", "output_hidden_states", "return_dict", "return_dict_in_generate", "output_scores"},
       kAll,
       no_effect,
       code,
       "",
       "what a call returns"},
      {{"torchscript"}, kAll, no_effect, code, "", "how a model is compiled"},
      {{"use_bfloat16", "tf_legacy_loss"}, kAll, no_effect, code, "", "of TensorFlow"},
      {{"attn_implementation"}, kAll, no_effect, code, "", "which kernel"},
      {{"gradient_checkpointing"}, kAll, no_effect, code, "", "memory of training"},
  };
}

std::string plain_dtype(const Value& value) {
  const std::string text = value.is_string() ? value.as_string() : "";
  return text.starts_with("torch.") ? text.substr(6) : text;
}

// Letters that are too many, missing or other ones.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

const std::vector<HfKey>& hf_keys() {
  static const std::vector<HfKey> keys = make_keys();
  return keys;
}

char letter(Family family) { return "glmq"[static_cast<int>(family)]; }

bool same_fact(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (a.is_string() && b.is_string()) return plain_dtype(a) == plain_dtype(b);
  return a == b;
}

const Value* HfReader::find(const std::string& key) const {
  const Value* const v = config_.find(key);
  return v && !v->is_null() ? v : nullptr;
}

int64_t HfReader::integer(const char* key, int64_t otherwise) const {
  return find(key) ? find(key)->as_int() : otherwise;
}
double HfReader::number(const char* key, double otherwise) const {
  return find(key) ? find(key)->as_double() : otherwise;
}
bool HfReader::flag(const char* key, bool otherwise) const { return find(key) ? find(key)->as_bool() : otherwise; }
std::string HfReader::text(const char* key, const char* otherwise) const {
  return find(key) ? find(key)->as_string() : otherwise;
}

void HfReader::refuse_if(bool bad, const std::string& key, const std::string& why) const {
  if (bad) throw wrong("\"", key, "\": ", find(key) ? find(key)->to_json() : "null", " is not supported: ", why);
}

bool HfReader::of_family(const HfKey& row) const {
  return std::string(row.families).find(letter(family_)) != std::string::npos;
}

// The value of whatever spelling is there. Those of rope are compared by what they come to (hf_rope.cpp).
const Value* HfReader::find_spelled(const HfKey& row) const {
  const std::string* first = nullptr;
  for (const std::string& name : row.names) {
    if (!find(name)) continue;
    if (!first) {
      first = &name;
    } else if (row.names.front() != "rope_parameters" && !same_fact(*find(*first), *find(name))) {
      throw wrong("\"", *first, "\" is ", find(*first)->to_json(), " and \"", name, "\" is ", find(name)->to_json(),
                  ": two spellings of one fact, which differ\n   keep the one that the weights were trained with");
    }
  }
  return first ? find(*first) : nullptr;
}

void HfReader::put(const HfKey& row, Shape& s) const {
  const std::string& key = row.names.front();
  const Value* value = find_spelled(row);
  if (std::holds_alternative<std::monostate>(row.member)) return;
  const std::string plain = row.plain;
  Value otherwise;
  if (!value) {
    // A key that is there and null is that of a model whose code fills it in.
    const bool derived = plain == "derived" || (std::holds_alternative<int64_t S::*>(row.member) && config_.find(key));
    if (plain.empty()) throw wrong("has no \"", key, "\"");
    if (!derived) otherwise = parse_json(plain, "the table of keys");
    if (derived) otherwise = kDerived;
    value = &otherwise;
  }
  if (const auto* size = std::get_if<int64_t S::*>(&row.member)) s.** size = value->as_int();
  if (const auto* number = std::get_if<double S::*>(&row.member)) s.** number = value->as_double();
  if (const auto* flag = std::get_if<bool S::*>(&row.member)) s.** flag = value->as_bool();
}

void HfReader::read(Shape& s) const {
  for (const HfKey& row : hf_keys()) {
    if (!of_family(row)) continue;
    if (row.use == Use::honoured) put(row, s);
    const Value* const value = row.use == Use::refused && *row.plain ? find_spelled(row) : nullptr;
    if (!value) continue;
    const Value plain = parse_json(row.plain, "the table of keys");
    const bool fine = std::any_of(plain.items().begin(), plain.items().end(),
                                  [&](const Value& one) { return same_fact(one, *value); });
    refuse_if(!fine, row.names.front(), row.why);
  }
}

std::vector<std::pair<std::string, std::string>> HfReader::unknown() const {
  std::vector<std::string> known;
  std::vector<std::pair<std::string, std::string>> list;
  for (const HfKey& row : hf_keys())
    if (of_family(row)) known.insert(known.end(), row.names.begin(), row.names.end());
  for (const Value::Member& member : config_.members()) {
    const std::string& key = member.key;
    // Those with "_" are transformers' own notes.
    if (key.starts_with("_") || std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string near;
    size_t least = std::max<size_t>(2, key.size() / 5) + 1;
    for (const std::string& one : known)
      if (const size_t letters = distance(key.substr(0, 100), one); letters < least && !config_.find(one))
        near = one, least = letters;
    list.emplace_back(
        key, concat("it is no key of ", model_type(family_), near.empty() ? "" : concat("; is \"", near, "\" meant?")));
  }
  return list;
}

}  // namespace drivetrain::gpt
