#include "matrix/cells.h"

#include <algorithm>
#include <stdexcept>

#include <drivetrain/error.h>

namespace drivetrain::test {
namespace {

// Limits are small, so that in a model of some twenty thousand elements every mechanism works: many buckets, prefetch,
// persistence, parameters that have to go before others come.
const Factor kShardings = {
    "sharding",
    {{"ddp", R"({"data_parallel": "ddp"})", "data_parallel/ddp"},
     {"zero1", R"({"zero_optimization": {"stage": 1, "reduce_bucket_size": 3000, "allgather_bucket_size": 3000}})",
      "data_parallel/zero"},
     {"zero2", R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": 3000}})", "data_parallel/zero"},
     {"zero3", R"({"zero_optimization": {"stage": 3, "reduce_bucket_size": 3000, "stage3_prefetch_bucket_size": 4000,
                   "stage3_param_persistence_threshold": 40, "stage3_max_live_parameters": 12000,
                   "stage3_max_reuse_distance": 5000}})",
      "data_parallel/zero"},
     {"fsdp", R"({"data_parallel": {"type": "fsdp", "params": {"prefetch": 1}}})", "data_parallel/fsdp"},
     {"mics", R"({"zero_optimization": {"stage": 3, "mics_shard_size": 2, "reduce_bucket_size": 3000,
                  "stage3_prefetch_bucket_size": 4000, "stage3_param_persistence_threshold": 40}})",
      "data_parallel/zero"},
     {"hsdp", R"({"data_parallel": {"type": "fsdp", "params": {"shard_group_size": 2, "prefetch": 2}}})",
      "data_parallel/fsdp"}}};

const Factor kDatas = {"data", {{"dp1", "{}", "", 1}, {"dp2", "{}", "", 2}, {"dp4", "{}", "", 4}}};

const Factor kExpertRanks = {
    "experts",
    {{"ep1", "{}", "", 1},
     {"ep2", R"({"expert_parallel": {"enabled": true, "autoep_size": 2}})", "expert_parallel/all_to_all", 2},
     {"ep4", R"({"expert_parallel": {"enabled": true, "autoep_size": 4}})", "expert_parallel/all_to_all", 4}}};

// The vocabulary of 97 becomes 98 rows: 49, and 48 with one of padding. By default it would be padded so much that one
// rank had all of it.
const Factor kTensors = {
    "tensor",
    {{"tp1", "{}", "", 1},
     {"tp2", R"({"tensor_parallel": {"type": "megatron", "params": {"size": 2, "make_vocab_size_divisible_by": 7}}})",
      "tensor_parallel/megatron", 2},
     {"tp2sp", R"({"tensor_parallel": {"type": "megatron", "params": {"size": 2, "make_vocab_size_divisible_by": 7,
                                                                      "sequence_parallel": true}}})",
      "tensor_parallel/megatron", 2}}};

const Factor kContexts = {
    "context",
    {{"cp1", "{}", "", 1},
     {"ring2", R"({"context_parallel": {"type": "ring", "params": {"size": 2}}})", "context_parallel/ring", 2},
     {"ulysses2", R"({"context_parallel": {"type": "ulysses", "params": {"size": 2}}})", "context_parallel/ulysses", 2},
     {"ulysses2ring2", R"({"context_parallel": [{"type": "ulysses", "params": {"size": 2}},
                                                {"type": "ring", "params": {"size": 2}}]})",
      "context_parallel/ulysses context_parallel/ring", 4}}};

const Factor kPipelines = {
    "pipeline",
    {{"pp1", R"({"pipeline": "accumulate"})", "schedule/accumulate", 1},
     {"gpipe2", R"({"pipeline": {"type": "gpipe", "params": {"stages": 2}}})", "schedule/gpipe", 2},
     {"1f1b2", R"({"pipeline": {"type": "one_f_one_b", "params": {"stages": 2}}})", "schedule/one_f_one_b", 2},
     {"interleaved2", R"({"pipeline": {"type": "interleaved", "params": {"stages": 2, "chunks": 2}}})",
      "schedule/interleaved", 2},
     {"zerobubble2", R"({"pipeline": {"type": "zero_bubble_h1", "params": {"stages": 2}}})", "schedule/zero_bubble_h1",
      2}}};

const Factor kRecomputes = {"recompute",
                            {{"keep", R"({"activation_checkpointing": "none"})", "recompute/none"},
                             {"full", R"({"activation_checkpointing": "full"})", "recompute/full"},
                             {"selective", R"({"activation_checkpointing": "selective"})", "recompute/selective"},
                             {"offload", R"({"activation_checkpointing": "offload"})", "recompute/offload"}}};

const Factor kAttentions = {"attention",
                            {{"standard", R"({"attention": "standard"})", "attention/standard"},
                             {"flash", R"({"attention": "flash"})", "attention/flash"}}};

const Factor kBlocks = {"block", {{"plain", R"({"fused_block": false})", ""}, {"fused", "{}", "strategy/fused_block"}}};

// Tied. The vocabulary is prime: ranks that share it out have to pad it. Three blocks make five units, which four
// pieces share unevenly. Key heads: four and two, so that one of the models has a single one per rank of two.
const Factor kModels = {
    "model",
    {{"gpt2", R"({"model": {"type": "gpt", "params": {"num_layers": 3, "hidden_size": 32, "num_attention_heads": 4,
       "ffn_hidden_size": 52, "vocab_size": 97, "max_position_embeddings": 20, "init_method_std": 0.15}}})",
      "model/gpt"},
     {"qwen2", R"({"model": {"type": "gpt", "params": {"num_layers": 3, "hidden_size": 32, "num_attention_heads": 4,
       "num_query_groups": 2, "ffn_hidden_size": 36, "vocab_size": 97, "max_position_embeddings": 20,
       "normalization": "rmsnorm", "position_embedding_type": "rope", "activation": "swiglu", "add_bias": false,
       "add_qkv_bias": true, "untie_embeddings_and_output_weights": false, "init_method_std": 0.15}}})",
      "model/gpt"},
     // Uneven choices, experts without a token, losses for balance and small logits. These losses are means over a
     // micro-batch of a rank: micro-batches of one row make them means over the same tokens in every cell. A rounding
     // may turn a choice where two scores are close, and the curve with it: with this seed none are closer than the
     // margin of mixture_test.cpp, which is far more than what cells differ by.
     {"moe", R"({"seed": 28, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": null,
       "model": {"type": "gpt", "params": {"num_layers": 3, "hidden_size": 32, "num_attention_heads": 4,
       "num_query_groups": 2, "ffn_hidden_size": 36, "vocab_size": 97, "max_position_embeddings": 20,
       "normalization": "rmsnorm", "position_embedding_type": "rope", "activation": "swiglu", "add_bias": false,
       "untie_embeddings_and_output_weights": false, "init_method_std": 0.15, "num_experts": 8,
       "num_experts_per_tok": 2, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 20,
       "shared_expert_gate": true, "add_qkv_bias": true,
       "first_k_dense_replace": 1, "aux_loss": "per_layer", "router_aux_loss_coef": 0.02,
       "router_z_loss_coef": 0.01}}})",
      "model/gpt"}}};

bool is(const Cell& cell, FactorIndex factor, const char* value) {
  return value_of(cell, factor).name == std::string(value);
}

bool in_groups(const Cell& c) { return is(c, kSharding, "mics") || is(c, kSharding, "hsdp"); }

const std::vector<Rule> kRules = {
    {"ranks", "the matrix ends at eight ranks", [](const Cell& c) { return ranks_of(c) > 8; }, nullptr},
    {"rows", "three micro-batches of twelve rows have one for each of four ranks",
     [](const Cell& c) { return value_of(c, kData).ranks * value_of(c, kExperts).ranks > 4; }, nullptr},
    {"shard groups", "groups of two ranks that share a copy of the model want at least two ranks of data",
     [](const Cell& c) { return in_groups(c) && is(c, kData, "dp1"); }, "does not divide the 1 rank"},
    {"no experts", "only a mixture has experts to share out",
     [](const Cell& c) { return !is(c, kExperts, "ep1") && !is(c, kModel, "moe"); }, "expert_parallel/all_to_all"},
};

}  // namespace

const std::vector<Factor>& factors() {
  static const std::vector<Factor> list = {kShardings, kDatas,      kExpertRanks, kTensors, kContexts,
                                           kPipelines, kRecomputes, kAttentions,  kBlocks,  kModels};
  return list;
}

const FactorValue& value_of(const Cell& cell, FactorIndex factor) {
  return factors()[factor].values[static_cast<size_t>(cell[factor])];
}

int ranks_of(const Cell& cell) {
  int ranks = 1;
  for (int f = 0; f < kFactors; ++f) ranks *= value_of(cell, FactorIndex(f)).ranks;
  return ranks;
}

std::string name_of(const Cell& cell) {
  std::string name;
  for (int f = 0; f < kFactors; ++f) name += concat(f == 0 ? "" : "_", value_of(cell, FactorIndex(f)).name);
  return name;
}

Cell cell_of(const std::vector<std::string>& values) {
  Cell cell = {};
  for (const std::string& wanted : values) {
    bool found = false;
    for (size_t f = 0; f < kFactors; ++f)
      for (size_t v = 0; v < factors()[f].values.size(); ++v)
        if (wanted == factors()[f].values[v].name) cell[f] = static_cast<int>(v), found = true;
    if (!found) throw std::logic_error("the matrix has no value " + wanted);
  }
  return cell;
}

std::vector<Cell> every_cell() {
  std::vector<Cell> cells = {Cell{}};
  for (size_t f = 0; f < kFactors; ++f) {
    std::vector<Cell> longer;
    for (const Cell& cell : cells)
      for (size_t v = 0; v < factors()[f].values.size(); ++v) {
        longer.push_back(cell);
        longer.back()[f] = static_cast<int>(v);
      }
    cells = std::move(longer);
  }
  return cells;
}

const std::vector<Rule>& rules() { return kRules; }

const Rule* excuse(const Cell& cell) {
  for (const Rule& rule : kRules)
    if (rule.excuses(cell)) return &rule;
  return nullptr;
}

std::vector<Cell> legal_cells() {
  std::vector<Cell> cells = every_cell();
  std::erase_if(cells, [](const Cell& cell) { return excuse(cell) != nullptr; });
  return cells;
}

void add_sections(Value& config, const std::string& sections) {
  const Value more = parse_json(sections, "sections");
  for (const Value::Member& member : more.members()) config.set(member.key, member.value);
}

Value config_of(const Cell& cell, const Value& base) {
  Value config = base;
  for (int f = 0; f < kFactors; ++f) add_sections(config, value_of(cell, FactorIndex(f)).sections);
  return config;
}

}  // namespace drivetrain::test
