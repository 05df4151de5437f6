// Our parameters and their places in Hugging Face folders, as data.
#include "hf_config.h"

namespace drivetrain::gpt {
namespace {

// Appends rules for one layer's weight and bias; `parts` are foreign names without ".weight".
class RuleList {
 public:
  explicit RuleList(WeightRules& rules) : rules_(rules) {}
  void weight(const std::string& ours, const std::vector<WeightPart>& parts, bool transposed = false) {
    add(ours, ".weight", parts, transposed);
  }
  void bias(const std::string& ours, const std::vector<WeightPart>& parts) { add(ours, ".bias", parts, false); }

 private:
  void add(const std::string& ours, const char* suffix, std::vector<WeightPart> parts, bool transposed) {
    for (WeightPart& part : parts) part.name += suffix;
    rules_.rules.push_back({ours + suffix, std::move(parts), transposed});
  }
  WeightRules& rules_;
};

void gpt2_block(RuleList& list, int64_t i, const Shape& s) {
  const std::string ours = concat("block.", i, "."), theirs = concat("h.", i, ".");
  const auto norm = [&](const char* our_name, const char* their_name) {
    list.weight(ours + our_name, {{theirs + their_name, s.hidden}});
    list.bias(ours + our_name, {{theirs + their_name, s.hidden}});
  };
  // Conv1D keeps [in, out].
  const auto matrix = [&](const char* our_name, const char* their_name, int64_t out) {
    list.weight(ours + our_name, {{theirs + their_name, out}}, true);
    list.bias(ours + our_name, {{theirs + their_name, out}});
  };
  norm("norm1", "ln_1");
  matrix("attn.qkv", "attn.c_attn", s.qkv_width());
  matrix("attn.proj", "attn.c_proj", s.hidden);
  norm("norm2", "ln_2");
  matrix("mlp.fc", "mlp.c_fc", s.ffn);
  matrix("mlp.proj", "mlp.c_proj", s.hidden);
}

WeightRules gpt2_rules(const Shape& s) {
  WeightRules rules;
  RuleList list(rules);
  rules.prefix = "transformer.";
  rules.ignored = {R"(h\.[0-9]+\.attn\.(masked_)?bias)"};
  list.weight("embedding.word", {{"wte", s.vocab}});
  list.weight("embedding.position", {{"wpe", s.positions}});
  for (int64_t i = 0; i < s.layers; ++i) gpt2_block(list, i, s);
  list.weight("final_norm", {{"ln_f", s.hidden}});
  list.bias("final_norm", {{"ln_f", s.hidden}});
  return rules;
}

void llama_block(RuleList& list, int64_t i, const Shape& s) {
  const std::string ours = concat("block.", i, "."), theirs = concat("layers.", i, ".");
  const int64_t q = s.heads * s.head_dim, kv = s.groups * s.head_dim;
  const std::vector<WeightPart> qkv = {
      {theirs + "self_attn.q_proj", q}, {theirs + "self_attn.k_proj", kv}, {theirs + "self_attn.v_proj", kv}};
  const std::vector<WeightPart> gate_up = {{theirs + "mlp.gate_proj", s.ffn}, {theirs + "mlp.up_proj", s.ffn}};
  const auto matrix = [&](const char* our_name, const std::vector<WeightPart>& parts, bool bias) {
    list.weight(ours + our_name, parts);
    if (bias) list.bias(ours + our_name, parts);
  };
  list.weight(ours + "norm1", {{theirs + "input_layernorm", s.hidden}});
  matrix("attn.qkv", qkv, s.any_qkv_bias());
  matrix("attn.proj", {{theirs + "self_attn.o_proj", s.hidden}}, s.bias);
  list.weight(ours + "norm2", {{theirs + "post_attention_layernorm", s.hidden}});
  matrix("mlp.fc", gate_up, s.bias);
  matrix("mlp.proj", {{theirs + "mlp.down_proj", s.hidden}}, s.bias);
}

WeightRules llama_rules(const Shape& s) {
  WeightRules rules;
  RuleList list(rules);
  rules.prefix = "model.";
  rules.ignored = {R"((layers\.[0-9]+\.self_attn\.)?rotary_emb\.inv_freq)"};
  list.weight("embedding.word", {{"embed_tokens", s.vocab}});
  for (int64_t i = 0; i < s.layers; ++i) llama_block(list, i, s);
  list.weight("final_norm", {{"norm", s.hidden}});
  return rules;
}

}  // namespace

WeightRules weight_rules(Family family, const Shape& s) {
  WeightRules rules = family == Family::gpt2 ? gpt2_rules(s) : llama_rules(s);
  // The output layer stands outside the prefix.
  if (s.tied)
    rules.tied = {{"lm_head.weight", "embedding.word.weight"}};
  else
    rules.rules.push_back({"head.weight", {{"lm_head.weight", s.vocab, false}}, false});
  return rules;
}

}  // namespace drivetrain::gpt
