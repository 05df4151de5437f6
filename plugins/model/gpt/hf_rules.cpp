// Our parameters and their places in Hugging Face folders, by the names of a family.
#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/block_layers.h>

#include "block_spec.h"
#include "hf_config.h"

namespace drivetrain::gpt {
namespace {

std::string with_number(std::string name, int64_t block) {
  if (const size_t at = name.find("{}"); at != std::string::npos) name.replace(at, 2, std::to_string(block));
  return name;
}

class RuleList {
 public:
  RuleList(const Family& family, const Shape& shape) : family_(family), s(shape) {
    rules.prefix = family.prefix;
    rules.ignored = family.ignored;
  }

  // `layer`: "block.{}.attn.qkv" of `block`; `rows`: of its weight or bias, `suffix`.
  void add(const std::string& layer, int64_t block, const std::string& suffix, int64_t rows) {
    const std::vector<FamilyTensor>* const theirs = family_.find_tensor(layer);
    if (!theirs)
      throw fail(ErrorCode::config, "model/gpt: the family ", family_.title, " has no tensor for ",
                 with_number(layer, block), suffix);
    WeightRule rule{with_number(layer, block) + suffix, {}, (*theirs)[0].transposed && suffix == ".weight"};
    if (layer.starts_with("block.{}.mlp.experts.")) {
      add_experts(layer, block, suffix, *theirs, rule.parts);
      rules.rules.push_back(std::move(rule));
      return;
    }
    const std::vector<int64_t> sizes = part_sizes(layer, rows, theirs->size());
    for (size_t i = 0; i < theirs->size(); ++i) {
      const FamilyTensor& t = (*theirs)[i];
      const WeightPart part = named(with_number(t.name, block) + suffix, sizes[i]);
      if (t.by_group)
        add_groups(part, rule.parts);
      else
        rule.parts.push_back(part);
    }
    rules.rules.push_back(std::move(rule));
  }

  WeightPart named(const std::string& name, int64_t rows) const {
    const std::string& prefix = family_.prefix;
    if (!prefix.empty() && name.starts_with(prefix)) return {name.substr(prefix.size()), rows};
    return {name, rows, false};
  }

  WeightRules rules;

 private:
  // Of the tensors that share a parameter: queries, keys, values; or gate and up.
  std::vector<int64_t> part_sizes(const std::string& layer, int64_t rows, size_t tensors) const {
    if (tensors == 1) return {rows};
    const int64_t kv = s.groups * s.head_dim;
    if (layer == "block.{}.attn.qkv" && tensors == 3) return {s.heads * s.head_dim, kv, kv};
    for (const auto& [fc, ffn] : {std::pair{"block.{}.mlp.fc", s.ffn},
                                  {"block.{}.mlp.experts.fc", s.mixture.ffn},
                                  {"block.{}.mlp.shared.fc", s.mixture.shared_ffn}})
      if (layer == fc && tensors == 2 && s.gated()) return {ffn, ffn};
    throw fail(ErrorCode::config, "model/gpt: the family ", family_.title, " has ", tensors, " tensors for ", layer,
               "; 3 are queries, keys and values, 2 a gate and what it multiplies");
  }

  // Ours are the rows of expert 0, of expert 1, ...; theirs has tensors of its own for each.
  void add_experts(const std::string& layer, int64_t block, const std::string& suffix,
                   const std::vector<FamilyTensor>& theirs, std::vector<WeightPart>& parts) const {
    const bool is_first = layer.ends_with(".fc");
    const std::vector<int64_t> sizes =
        part_sizes(layer, is_first ? s.fc_width(s.mixture.ffn) : s.hidden, theirs.size());
    for (int64_t expert = 0; expert < s.mixture.experts; ++expert)
      for (size_t i = 0; i < theirs.size(); ++i) {
        const std::string name = with_number(theirs[i].name, block);
        if (theirs[i].by_group || name.find("{}") == std::string::npos)
          throw fail(ErrorCode::config, "model/gpt: the family ", family_.title, " has ", theirs[i].name, " for ",
                     layer, "; a second {}, the number of the expert, was wanted");
        parts.push_back(named(with_number(name, expert) + suffix, sizes[i]));
      }
  }

  // Ours are all queries, all keys, all values; theirs go by group: its H / G queries, its key, its value.
  void add_groups(const WeightPart& whole, std::vector<WeightPart>& parts) const {
    const int64_t queries = s.heads / s.groups * s.head_dim, group = queries + 2 * s.head_dim;
    const auto add = [&](int64_t first, int64_t rows) {
      for (int64_t g = 0; g < s.groups; ++g) parts.push_back({whole.name, rows, whole.prefixed, g * group + first});
    };
    add(0, queries), add(queries, s.head_dim), add(queries + s.head_dim, s.head_dim);
  }

  const Family& family_;
  const Shape& s;
};

}  // namespace

WeightRules weight_rules(const Family& family, const Shape& s, AbsentRows absent) {
  RuleList list(family, s);
  list.add("embedding.word", 0, ".weight", s.vocab);
  if (!s.rotary) list.add("embedding.position", 0, ".weight", s.positions);
  for (int64_t i = 0; i < s.layers; ++i)
    for (const LayerTensor& t : block_tensors(s, i)) {
      const std::string own = concat("block.", i, "."), name = t.name.substr(own.size());
      const size_t dot = name.rfind('.');
      list.add("block.{}." + name.substr(0, dot), i, name.substr(dot), t.rows);
    }
  const NormSpec last = final_norm_spec(s);
  if (last.gain) list.add("final_norm", 0, ".weight", s.hidden);
  if (last.bias) list.add("final_norm", 0, ".bias", s.hidden);
  if (!s.tied) {
    list.add("head", 0, ".weight", s.vocab);
  } else if (const auto* const head = family.find_tensor("head")) {
    const WeightPart part = list.named(head->front().name + ".weight", s.vocab);
    list.rules.tied = {{part.name, "embedding.word.weight"}};
  }
  for (WeightRule& rule : list.rules.rules)
    if (rule.param == "embedding.word.weight" || rule.param == "head.weight")
      for (WeightPart& part : rule.parts) part.absent = absent;
  return list.rules;
}

}  // namespace drivetrain::gpt
