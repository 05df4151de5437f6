// Which family can say what of a shape.
#include <algorithm>
#include <cmath>

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
    "logits_scaling": 1, "attn_logit_softcapping": 0, "final_logit_softcapping": 0})",
                                       "model/gpt");
  if (option == "norm_bias") return !s.rms;
  if (option == "attention_multiplier") return 1 / std::sqrt(static_cast<double>(s.head_dim));
  if (option == "num_query_groups") return s.heads;
  if (option == "kv_channels") return s.heads > 0 && s.hidden % s.heads == 0 ? Value(s.hidden / s.heads) : Value();
  const Value* const found = list.find(option);
  return found ? *found : Value();
}

bool reads_it(const Family& f, const std::string& option) {
  if (option == "rotary_base" || option == "rope_scaling") return f.rope.has_value();
  if (option == "rotary_percent") return f.rope && f.rope->percent;
  if (option == "rotary_local_base") return f.rope && f.rope->local;
  if (option == "rotary_layers") return f.no_rope_interval > 0;
  return (option == "sliding_window" || option == "window_layers") && f.window;
}

std::string joined(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& one : list) text += concat(text.empty() ? "" : ", ", one);
  return text;
}

std::vector<std::string> misfits(const Family& f, const Shape& s) {
  const Value facts = facts_of(s), common = family_options(f, s.hidden);
  std::vector<std::string> list;
  for (const Value::Member& fact : facts.members()) {
    const std::string& option = fact.key;
    if (is_of_training(option)) continue;
    bool fits = reads_it(f, option);
    for (const FamilyKey& key : f.keys)
      if (std::find(key.sets.begin(), key.sets.end(), option) != key.sets.end()) {
        fits = to_theirs(key, fact.value).has_value();
        for (const std::string& other : key.sets)
          fits = fits && (is_of_training(other) || same_fact(*facts.find(other), fact.value));
      }
    const Value* const fixed = common.find(option);
    fits = fits || same_fact(fact.value, fixed ? *fixed : plain_value(option, s));
    if (!fits) list.push_back(concat(option, " ", fact.value.to_json()));
  }
  if (!list.empty()) return list;
  if (f.window && !can_say_windows(f, s))
    list.push_back(concat("window_layers ", facts.find("window_layers")->to_json()));
  for (const LayerTensor& t : block_tensors(s, 0)) {
    const std::string layer = "block.{}." + t.name.substr(8, t.name.rfind('.') - 8);
    if (!f.find_tensor(layer)) list.push_back(concat("a tensor for ", t.name));
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
