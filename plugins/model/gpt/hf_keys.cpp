// Source: transformers, configuration_utils.py and models/{gpt2,llama,mistral,qwen2}/configuration_*.py of 4.57 and 5.
#include "hf_keys.h"

#include <algorithm>

namespace drivetrain::gpt {
namespace {

using S = Shape;
constexpr const char *kGpt2 = "GPT-2", *kLlama = "Llama", *kMistral = "Mistral", *kQwen2 = "Qwen2";
constexpr const char *kLlamas = "Llama, Mistral, Qwen2", *kAll = "all";
constexpr const char* kScale = "attention is scaled by 1 / sqrt(head size) in every block";
constexpr const char* kWhole = "every layer attends to the whole sequence";
constexpr const char* kTurns = "rotary embeddings turn whole heads";

std::vector<HfKey> make_keys() {
  using enum KeyUse;
  return {
      {{kAll, "model_type", honoured, "has to be there; which family"}},
      {{kAll, "vocab_size", honoured, "has to be there"}, &S::vocab},
      {{kGpt2, "tie_word_embeddings", honoured, "", "true"}, &S::tied},
      {{kLlamas, "tie_word_embeddings", honoured, "", "false"}, &S::tied},
      {{kAll, "initializer_range", honoured, "of values that no file gives", "0.02"}, &S::init_std},
      {{kAll, "dtype|torch_dtype", honoured, "the type of exported weights (`save_dtype`)", ""}},

      {{kGpt2, "n_layer|num_hidden_layers", honoured, "has to be there"}, &S::layers},
      {{kGpt2, "n_embd|hidden_size", honoured, "has to be there"}, &S::hidden},
      {{kGpt2, "n_head|num_attention_heads", honoured, "has to be there"}, &S::heads},
      {{kGpt2, "n_positions|n_ctx|max_position_embeddings", honoured, "has to be there"}, &S::positions},
      {{kGpt2, "n_inner", honoured, "absent or null: 4 times n_embd", ""}, &S::ffn},
      {{kGpt2, "activation_function", honoured, "gelu_new, gelu_pytorch_tanh or gelu", "\"gelu_new\""}},
      {{kGpt2, "layer_norm_epsilon", honoured, "", "1e-5"}, &S::norm_epsilon},
      {{kGpt2, "resid_pdrop", honoured, "", "0.1"}, &S::hidden_dropout},
      {{kGpt2, "embd_pdrop", honoured, "", "0.1"}, &S::embedding_dropout},
      {{kGpt2, "attn_pdrop", honoured, "", "0.1"}, &S::attention_dropout},
      {{kGpt2, "scale_attn_weights", refused, "attention is always scaled by 1 / sqrt(head size)", "[true]"}},
      {{kGpt2, "scale_attn_by_inverse_layer_idx", refused, kScale, "[false]"}},
      {{kAll, "add_cross_attention", refused, "there is no encoder to attend to", "[false]"}},
      {{kAll, "is_encoder_decoder", refused, "there is no encoder to attend to", "[false]"}},
      {{kAll, "pruned_heads", refused, "all blocks have the same number of heads", "[{}, []]"}},
      {{kAll, "quantization_config", refused, "weights must be float32, bfloat16 or float16", "[]"}},

      {{kLlamas, "num_hidden_layers", honoured, "has to be there"}, &S::layers},
      {{kLlamas, "hidden_size", honoured, "has to be there"}, &S::hidden},
      {{kLlamas, "num_attention_heads", honoured, "has to be there"}, &S::heads},
      {{kLlama, "num_key_value_heads", honoured, "null: as many as heads", ""}, &S::groups},
      {{kMistral, "num_key_value_heads", honoured, "null: as many as heads", "8"}, &S::groups},
      {{kQwen2, "num_key_value_heads", honoured, "null: as many as heads", "32"}, &S::groups},
      {{kLlamas, "head_dim", honoured, "absent or null: hidden_size / num_attention_heads", ""}, &S::head_dim},
      {{kLlamas, "intermediate_size", honoured, "has to be there"}, &S::ffn},
      {{kLlamas, "max_position_embeddings", honoured, "has to be there"}, &S::positions},
      {{kLlamas, "rms_norm_eps", honoured, "", "1e-6"}, &S::norm_epsilon},
      {{kLlamas, "attention_dropout", honoured, "", "0"}, &S::attention_dropout},
      {{kLlamas, "rope_parameters|rope_scaling", honoured, "rope_type default or llama3", ""}},
      {{kLlamas, "rope_theta", honoured, "the same as in rope_parameters", "10000"}},
      {{kLlamas, "partial_rotary_factor", refused, kTurns, "[1]"}},
      {{kLlamas, "hidden_act", refused, "the gated MLP uses silu", "[\"silu\", \"swish\"]"}},
      {{kLlama, "attention_bias", honoured, "as mlp_bias, or refused", "false"}},
      {{kLlama, "mlp_bias", honoured, "as attention_bias, or refused", "false"}},
      {{kMistral, "sliding_window", refused, "4096 where absent; null, or no position beyond it"}},
      {{kQwen2, "use_sliding_window", refused, "true only where no position is beyond the window"}},
      {{kQwen2, "sliding_window", refused, "of use_sliding_window"}},
      {{kQwen2, "max_window_layers", refused, "of use_sliding_window"}},
      {{kLlamas, "layer_types", refused, kWhole}},

      {{kGpt2, "reorder_and_upcast_attn", no_effect, "precision of attention"}},
      {{kGpt2, "summary_type|summary_use_proj|summary_activation|summary_proj_to_labels|summary_first_dropout",
        no_effect, "of a classifier"}},
      {{kLlamas, "pretraining_tp", no_effect, "cuts products and adds the parts"}},
      {{kAll, "architectures", no_effect, "tensors show it"}},
      {{kAll, "transformers_version", no_effect, "who wrote the file"}},
      {{kAll,
        "use_cache|task_specific_params|max_length|min_length|do_sample|early_stopping|num_beams|"
        "num_beam_groups|diversity_penalty|temperature|top_k|top_p|typical_p|repetition_penalty|"
        "length_penalty|no_repeat_ngram_size|encoder_no_repeat_ngram_size|bad_words_ids|"
        "num_return_sequences|forced_bos_token_id|forced_eos_token_id|remove_invalid_values|"
        "exponential_decay_length_penalty|suppress_tokens|begin_suppress_tokens",
        no_effect, "of generation"}},
      {{kAll, "bos_token_id|eos_token_id|pad_token_id|sep_token_id", no_effect, "kept for export"}},
      {{kAll, "decoder_start_token_id|cross_attention_hidden_size|tie_encoder_decoder", no_effect,
        "of an encoder's decoder"}},
      {{kAll, "is_decoder", no_effect, "every model here is causal"}},
      {{kAll, "tokenizer_class|prefix", no_effect, "of the tokenizer"}},
      {{kAll, "chunk_size_feed_forward", no_effect, "cuts the MLP's rows"}},
      {{kAll, "id2label|label2id|num_labels|classifier_dropout|problem_type|finetuning_task", no_effect,
        "of a classifier"}},
      {{kAll, "output_attentions|output_hidden_states|return_dict|return_dict_in_generate|output_scores", no_effect,
        "what a call returns"}},
      {{kAll, "torchscript", no_effect, "how a model is compiled"}},
      {{kAll, "use_bfloat16|tf_legacy_loss", no_effect, "of TensorFlow"}},
      {{kAll, "attn_implementation", no_effect, "which kernel"}},
      {{kAll, "gradient_checkpointing", no_effect, "memory of training"}},
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

bool is_of(const KeyRow& row, Family family) {
  constexpr const char* kNames[] = {kGpt2, kLlama, kMistral, kQwen2};
  const std::string of = row.of;
  return of == kAll || of.find(kNames[static_cast<int>(family)]) != std::string::npos;
}

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

// The value of whatever spelling is there. Those of rope are compared by what they come to (hf_rope.cpp).
const Value* HfReader::find_spelled(const KeyRow& row) const {
  std::string first;
  for (const std::string& name : spellings(row.names)) {
    if (!find(name)) continue;
    if (first.empty()) {
      first = name;
    } else if (first != "rope_parameters" && !same_fact(*find(first), *find(name))) {
      throw wrong("\"", first, "\" is ", find(first)->to_json(), " and \"", name, "\" is ", find(name)->to_json(),
                  ": two spellings of one fact, which differ\n   keep the one that the weights were trained with");
    }
  }
  return first.empty() ? nullptr : find(first);
}

void HfReader::put(const HfKey& row, Shape& s) const {
  const std::string key = spellings(row.names).front();
  const Value* value = find_spelled(row);
  if (std::holds_alternative<std::monostate>(row.member)) return;
  Value otherwise;
  if (!value) {
    // A key that is there and null is that of a model whose code fills it in.
    const bool derived =
        (row.plain && !*row.plain) || (std::holds_alternative<int64_t S::*>(row.member) && config_.find(key));
    if (!row.plain) throw wrong("has no \"", key, "\"");
    if (!derived) otherwise = parse_json(row.plain, "the table of keys");
    if (derived) otherwise = kDerived;
    value = &otherwise;
  }
  if (const auto* size = std::get_if<int64_t S::*>(&row.member)) s.** size = value->as_int();
  if (const auto* number = std::get_if<double S::*>(&row.member)) s.** number = value->as_double();
  if (const auto* flag = std::get_if<bool S::*>(&row.member)) s.** flag = value->as_bool();
}

void HfReader::read(Shape& s) const {
  for (const HfKey& row : hf_keys()) {
    if (!is_of(row, family_)) continue;
    if (row.use == KeyUse::honoured) put(row, s);
    const Value* const value = row.use == KeyUse::refused && row.plain ? find_spelled(row) : nullptr;
    if (!value) continue;
    const Value plain = parse_json(row.plain, "the table of keys");
    const bool fine = std::any_of(plain.items().begin(), plain.items().end(),
                                  [&](const Value& one) { return same_fact(one, *value); });
    refuse_if(!fine, row.names, row.why);
  }
}

std::vector<std::pair<std::string, std::string>> HfReader::unknown() const {
  std::vector<std::string> known;
  std::vector<std::pair<std::string, std::string>> list;
  for (const HfKey& row : hf_keys())
    if (is_of(row, family_))
      for (const std::string& name : spellings(row.names)) known.push_back(name);
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
