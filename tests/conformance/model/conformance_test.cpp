// The conformance suite of models, over those that are built: model/gpt in the shapes that differ most.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <drivetrain/testkit/kit/suite.h>
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

// GPT-2 with tied ends and dropout, Llama, and a mixture behind a layer without experts. Its tokens pass all experts:
// among fewer, a step of a difference quotient could choose another one.
constexpr const char* kShapes[] = {
    R"({"num_layers": 2, "hidden_size": 16, "num_attention_heads": 4, "vocab_size": 13, "max_position_embeddings": 16,
        "hidden_dropout": 0.1})",
    R"({"num_layers": 2, "hidden_size": 16, "num_attention_heads": 4, "num_query_groups": 2, "ffn_hidden_size": 24,
        "vocab_size": 13, "max_position_embeddings": 16, "normalization": "rmsnorm", "activation": "swiglu",
        "position_embedding_type": "rope", "add_bias": false, "untie_embeddings_and_output_weights": true})",
    R"({"num_layers": 2, "hidden_size": 16, "num_attention_heads": 4, "num_query_groups": 2, "ffn_hidden_size": 24,
        "vocab_size": 13, "max_position_embeddings": 16, "normalization": "rmsnorm", "activation": "swiglu",
        "position_embedding_type": "rope", "add_bias": false, "num_experts": 4, "num_experts_per_tok": 4,
        "moe_intermediate_size": 8, "first_k_dense_replace": 1, "shared_expert_intermediate_size": 12,
        "shared_expert_gate": true, "add_qkv_bias": true, "router_aux_loss_coef": 0})"};

TEST(ModelConformance, gpt_passes) {
  at::set_num_threads(1);
  for (const char* options : kShapes)
    run_suite({.kind = "model", .name = "gpt", .options = parse_json(options, "test"), .train = train_by_threads});
}

}  // namespace
}  // namespace drivetrain::test
