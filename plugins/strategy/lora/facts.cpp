#include "facts.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <drivetrain/error.h>

#include "targets.h"

namespace drivetrain::lora {
namespace {

// A linear layer of every block, under its Hugging Face name.
struct Layer {
  const char* name;
  int64_t out, in;
};

struct Family {
  std::string blocks, head;  // paths
  std::vector<Layer> layers;
};

// By the work of a block's matrices: of GPT-2's kind two are the MLP's, of Llama's three. Mixtures are of Llama's kind.
Family family_of(const ModelFacts& f) {
  const int64_t hidden = f.hidden_size, ffn = f.ffn_hidden_size.value_or(4 * hidden);
  const int64_t heads = f.num_attention_heads.value_or(1), dim = f.head_dim.value_or(hidden / heads);
  const int64_t queries = heads * dim, keys = f.num_query_groups.value_or(heads) * dim;
  const auto matrices = static_cast<int64_t>(f.flops_per_token_fixed / 6);
  const int64_t block = (matrices - hidden * f.vocab_size) / std::max<int64_t>(f.num_layers, 1);
  if (f.mixture.experts == 0 && block < 2 * hidden * (queries + keys) + 3 * hidden * ffn)
    return {"transformer.h.",
            "lm_head",
            {{"attn.c_attn", queries + 2 * keys, hidden},
             {"attn.c_proj", hidden, queries},
             {"mlp.c_fc", ffn, hidden},
             {"mlp.c_proj", hidden, ffn}}};
  return {"model.layers.",
          "lm_head",
          {{"self_attn.q_proj", queries, hidden},
           {"self_attn.k_proj", keys, hidden},
           {"self_attn.v_proj", keys, hidden},
           {"self_attn.o_proj", hidden, queries},
           {"mlp.gate_proj", ffn, hidden},
           {"mlp.up_proj", ffn, hidden},
           {"mlp.down_proj", hidden, ffn}}};
}

int64_t adapter_parameters(const Options& options, const Family& family, const ModelFacts& facts) {
  WeightRules rules;
  const auto add = [&](const std::string& path, int64_t rows) {
    rules.rules.push_back({path + ".weight", {{path + ".weight", rows}}});
  };
  // Experts get no adapters; blocks without them come first.
  const auto layers_of_block = [&](int64_t i) {
    std::vector<Layer> layers = family.layers;
    if (i >= facts.num_layers - facts.mixture.layers)
      std::erase_if(layers, [](const Layer& layer) { return std::string_view(layer.name).starts_with("mlp."); });
    return layers;
  };
  for (int64_t i = 0; i < facts.num_layers; ++i)
    for (const Layer& layer : layers_of_block(i)) add(concat(family.blocks, i, ".", layer.name), layer.out);
  add(family.head, facts.vocab_size);
  int64_t sum = 0;
  try {
    Targets targets(options, rules);
    for (int64_t i = 0; i < facts.num_layers; ++i)
      for (const Layer& layer : layers_of_block(i))
        for (const Wish& wish : targets.of_linear(concat(family.blocks, i, ".", layer.name), layer.out, layer.in))
          sum += wish.rank * (layer.out + layer.in);
    if (!targets.problems().empty()) return 0;  // another model's names, or options that are refused with the model
  } catch (const Error&) {
    return 0;  // the same
  }
  return sum;
}

}  // namespace

void change_facts(const Options& options, ModelFacts& facts) {
  const Family family = family_of(facts);
  const int64_t adapters = adapter_parameters(options, family, facts);
  const auto& whole = *options.modules_to_save;
  const bool trains_head = std::find(whole.begin(), whole.end(), family.head) != whole.end();
  const double matrices = facts.flops_per_token_fixed / 6;
  const double head = trains_head ? static_cast<double>(facts.vocab_size * facts.hidden_size) : 0;
  facts.flops_per_token_fixed = 4 * matrices + 2 * head + 6 * static_cast<double>(adapters);
  facts.parameters += adapters;
  if (facts.parameters_active > 0) facts.parameters_active += adapters;
  if (!facts.flops_formula.empty())
    facts.flops_formula += "; with adapters: 4 per parameter of a frozen matrix, 6 per parameter of an adapter";
}

}  // namespace drivetrain::lora
