// Source: torchtitan/models/llama3/model/model.py; transformers/models/llama/convert_llama_weights_to_hf.py for the
// order of rows. Rotary positions turn neighbouring rows of a head there, and row i with row i + C / 2 here (C: head
// size).
#include "meta_rules.h"

#include <drivetrain/error.h>

#include "family.h"

namespace drivetrain::gpt {
namespace {

class MetaRules {
 public:
  explicit MetaRules(const Shape& shape) : s(shape) {}

  void weight(const std::string& ours, std::vector<WeightPart> parts) {
    for (WeightPart& part : parts) part.name += ".weight";
    rules.rules.push_back({ours + ".weight", std::move(parts), false});
  }

  // Rows of queries or keys, one by one.
  void turned(std::vector<WeightPart>& parts, const std::string& name, int64_t heads) const {
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t half = 0; half < 2; ++half)
        for (int64_t i = 0; i < s.head_dim / 2; ++i) parts.push_back({name, 1, true, head * s.head_dim + 2 * i + half});
  }

  void block(int64_t i) {
    const std::string ours = concat("block.", i, "."), theirs = concat("layers.", i, ".");
    weight(ours + "norm1", {{theirs + "attention_norm", s.hidden}});
    std::vector<WeightPart> qkv;
    turned(qkv, theirs + "attention.wq", s.heads), turned(qkv, theirs + "attention.wk", s.groups);
    qkv.push_back({theirs + "attention.wv", s.groups * s.head_dim});
    weight(ours + "attn.qkv", std::move(qkv));
    weight(ours + "attn.proj", {{theirs + "attention.wo", s.hidden}});
    weight(ours + "norm2", {{theirs + "ffn_norm", s.hidden}});
    weight(ours + "mlp.fc", {{theirs + "feed_forward.w1", s.ffn}, {theirs + "feed_forward.w3", s.ffn}});
    weight(ours + "mlp.proj", {{theirs + "feed_forward.w2", s.hidden}});
  }

  const Shape& s;
  WeightRules rules;
};

}  // namespace

WeightRules meta_rules(const Shape& s) {
  const std::string wrong = misfit(*known_family("llama"), s);
  if (!wrong.empty() || s.qkv_bias || s.proj_bias || s.mlp_bias)
    throw fail(ErrorCode::config,
               "model/gpt: the checkpoint has Meta's names of a Llama (tok_embeddings, wq, w1), and the ",
               "config describes another model\n   give the config of a Llama: rmsnorm, rope, swiglu, no biases");
  MetaRules list(s);
  list.rules.ignored = {"freqs_cis"};
  list.weight("embedding.word", {{"tok_embeddings", s.vocab}});
  for (int64_t i = 0; i < s.layers; ++i) list.block(i);
  list.weight("final_norm", {{"norm", s.hidden}});
  if (s.tied)
    list.rules.tied = {{"output.weight", "embedding.word.weight"}};
  else
    list.weight("head", {{"output", s.vocab}});
  return list.rules;
}

}  // namespace drivetrain::gpt
