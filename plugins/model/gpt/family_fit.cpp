// Which family can say what of a shape.
#include <algorithm>
#include <cmath>
#include <set>

#include <drivetrain/error.h>

#include "block_spec.h"
#include "family.h"
#include "hf_layers.h"

namespace drivetrain::gpt {
namespace {

// What an option is where nobody says anything; null: a family has to say it, by a key or for all of its models.
Value plain_value(const std::string& option, const Shape& s) {
  static const Value list = parse_json(R"({"normalization": "layernorm", "norm_placement": "before", "norm_gain": true,
    "norm_offset": 0, "qk_norm": "none", "use_parallel_residual": false, "position_embedding_type": "learned",
    "rotary_percent": 1, "rotary_layers": [], "sliding_window": 0, "window_layers": [], "add_qkv_bias": false,
    "add_proj_bias": false, "add_mlp_bias": false, "embedding_multiplier": 1, "residual_multiplier": 1,
    "logits_scaling": 1, "attn_logit_softcapping": 0, "final_logit_softcapping": 0, "num_experts": 0,
    "moe_layers": []})",
                                       "model/gpt");
  static const Value of_experts = parse_json(R"({
    "shared_expert_intermediate_size": 0, "shared_expert_gate": false, "first_k_dense_replace": 0,
    "norm_topk_prob": false, "router": "softmax", "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1})",
                                             "model/gpt");
  if (option == "norm_bias") return !s.rms;
  if (option == "attention_multiplier") return 1 / std::sqrt(static_cast<double>(s.head_dim));
  if (option == "num_query_groups") return s.heads;
  if (option == "kv_channels") return s.heads > 0 && s.hidden % s.heads == 0 ? Value(s.hidden / s.heads) : Value();
  const Value* found = list.find(option);
  if (!found && s.mixture.experts > 0) found = of_experts.find(option);
  return found ? *found : Value();
}

bool reads_it(const Family& f, const std::string& option) {
  if (option == "rotary_base" || option == "rope_scaling") return f.rope.has_value();
  if (option == "rotary_percent") return f.rope && f.rope->percent;
  if (option == "rotary_local_base") return f.rope && f.rope->local;
  if (option == "rotary_layers") return f.no_rope_interval > 0;
  if (option == "moe_layers" || option == "first_k_dense_replace") return f.experts && !f.experts->dense.empty();
  return (option == "sliding_window" || option == "window_layers") && f.window;
}

std::string joined(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& one : list) text += concat(text.empty() ? "" : ", ", one);
  return text;
}

// The width of an MLP that no layer has.
bool is_idle(const Shape& s, const std::string& option) { return option == "ffn_hidden_size" && !s.any_dense(); }

// Whether the layers without experts are the first ones.
bool is_dense_in_front(const Shape& s) { return std::is_sorted(s.mixture.layers.begin(), s.mixture.layers.end()); }

std::vector<std::string> misfits(const Family& f, const Shape& s) {
  const Value facts = facts_of(s), common = family_options(f, s.hidden);
  std::vector<std::string> list;
  for (const Value::Member& fact : facts.members()) {
    const std::string& option = fact.key;
    if (is_of_training(option) || is_idle(s, option)) continue;
    bool fits = reads_it(f, option);
    for (const FamilyKey& key : f.keys)
      if (std::find(key.sets.begin(), key.sets.end(), option) != key.sets.end()) {
        fits = to_theirs(key, fact.value).has_value();
        for (const std::string& other : key.sets)
          fits = fits && (is_of_training(other) || is_idle(s, other) || same_fact(*facts.find(other), fact.value));
      }
    const Value* const fixed = common.find(option);
    fits = fits || same_fact(fact.value, fixed ? *fixed : plain_value(option, s));
    if (!fits) list.push_back(concat(option, " ", fact.value.to_json()));
  }
  if (f.experts && s.mixture.experts == 0) list.push_back("num_experts 0");
  if (f.experts && f.experts->dense == "first_k_dense_replace" && !is_dense_in_front(s))
    list.push_back(concat("moe_layers ", facts.find("moe_layers")->to_json()));
  if (!list.empty()) return list;
  if (f.window && !can_say_windows(f, s))
    list.push_back(concat("window_layers ", facts.find("window_layers")->to_json()));
  std::set<std::string> missing;
  for (int64_t i = 0; i < s.layers; ++i)
    if (i == 0 || s.is_mixture(i) != s.is_mixture(i - 1))
      for (const LayerTensor& t : block_tensors(s, i)) {
        const size_t own = concat("block.", i, ".").size();
        const std::string layer = "block.{}." + t.name.substr(own, t.name.rfind('.') - own);
        if (!f.find_tensor(layer) && missing.insert(layer).second) list.push_back(concat("a tensor for ", t.name));
      }
  return list;
}

}  // namespace

std::string misfit(const Family& family, const Shape& shape) { return joined(misfits(family, shape)); }

FamilyPtr family_of(const Shape& s) {
  FamilyPtr nearest;
  std::vector<std::string> least;
  for (const FamilyPtr& family : known_families()) {
    std::vector<std::string> list = misfits(*family, s);
    if (list.empty()) return family;
    if (!nearest || list.size() < least.size()) nearest = family, least = std::move(list);
  }
  throw fail(ErrorCode::config, "model/gpt: no Hugging Face family can hold this model, so these weights cannot be ",
             "written as such a folder. The nearest is ", nearest->title, ", which cannot say ", joined(least),
             "\n   change that, or describe a family that can (option \"family\")");
}

}  // namespace drivetrain::gpt
