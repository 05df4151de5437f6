// tensor_parallel/megatron: what it refuses and says in plan, its options, how it shares positions. What it computes is
// tested by the kind's suite (tests/conformance/tensor_parallel/suite.h).
#include "megatron.h"

#include <gtest/gtest.h>

#include <drivetrain/error.h>
#include <drivetrain/plan_record.h>

#include "support/plugin_under_test.h"

namespace drivetrain::test {
namespace {

using namespace megatron;

ModelFacts gpt2() {
  ModelFacts facts;
  facts.num_layers = 12, facts.hidden_size = 768, facts.num_attention_heads = facts.num_query_groups = 12,
  facts.head_dim = 64;
  facts.ffn_hidden_size = 3072, facts.vocab_size = 50257;
  return facts;
}

PlanRecord planned(const std::string& json, const ModelFacts& facts, const RunFacts& run = {}) {
  const Host host;
  PlanRecord context(facts, run);
  context.set_plugin("tensor_parallel/megatron");
  make_plugin<TensorParallel>(host, "megatron", json)->plan(context);
  return context;
}

std::string refusals(const std::string& json, const ModelFacts& facts, const RunFacts& run = {}) {
  const PlanRecord context = planned(json, facts, run);
  std::string text;
  for (const auto& refusal : context.refusals()) text += refusal.text + "\n";
  return text;
}

TEST(Megatron, claims_the_axis_inside_of_all_others) {
  const PlanRecord context = planned(R"({"size": 4})", gpt2());
  ASSERT_EQ(context.claims().size(), 1u);
  const auto& claim = context.claims()[0];
  EXPECT_EQ(claim.axis, "tp");
  EXPECT_EQ(claim.size, 4);
  EXPECT_FALSE(claim.joins_gradients());
  EXPECT_EQ(claim.place, PlanRecord::kTensorPlace);
  EXPECT_TRUE(context.refusals().empty());
  EXPECT_EQ(context.capturables(), std::vector<std::string>{"tensor_parallel/megatron"});
}

TEST(Megatron, knows_deepspeeds_and_megatrons_names_of_size) {
  for (const char* json : {R"({"autotp_size": 2})", R"({"tensor_model_parallel_size": 2})"})
    EXPECT_EQ(planned(json, gpt2()).claims().at(0).size, 2) << json;
}

TEST(Megatron, size_1_has_no_effect_and_says_what_else_has_none) {
  for (const char* json :
       {"{}", R"({"size": 0})", R"({"size": 1, "sequence_parallel": true, "keep_gathered": true})"}) {
    const Host host;
    const auto plugin = make_plugin<TensorParallel>(host, "megatron", json);
    PlanRecord context(gpt2(), {});
    plugin->plan(context);
    EXPECT_TRUE(context.claims().empty() && context.refusals().empty() && context.traffics().empty()) << json;
    const Mesh mesh({}, 0, 1, nullptr);
    const ModelFacts facts = gpt2();
    Builder builder{nullptr, nullptr, mesh, facts};
    plugin->build(builder);
    EXPECT_EQ(builder.layers, nullptr);
    EXPECT_TRUE(builder.activation_cuts.empty());
  }
  const auto notes = planned(R"({"size": 1, "sequence_parallel": true, "keep_gathered": true})", gpt2()).no_effects();
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0].text, "sequence_parallel changes nothing: size is 1");
}

TEST(Megatron, refuses_what_does_not_divide_and_names_what_does) {
  EXPECT_EQ(
      refusals(R"({"size": 8})", gpt2()),
      "size 8 does not divide the model's 12 attention heads (num_attention_heads). Use a size of 1, 2, 3, 4, 6, 12\n"
      "size 8 does not divide the model's 12 key/value heads (num_query_groups). Use a size of 1, 2, 3, 4, 6, 12\n");
  ModelFacts narrow = gpt2();
  narrow.ffn_hidden_size = 3070;
  EXPECT_EQ(refusals(R"({"size": 4})", narrow),
            "size 4 does not divide the model's 3070 inner columns of the MLP (ffn_hidden_size). Use a size of 1, 2\n");
}

TEST(Megatron, refuses_more_ranks_than_key_heads) {
  ModelFacts grouped = gpt2();
  grouped.num_query_groups = 2;
  EXPECT_EQ(refusals(R"({"size": 4})", grouped),
            "size 4 is more ranks than the model has key/value heads (num_query_groups 2): each rank needs one of its "
            "own. Use a size of "
            "1, 2\n");
}

TEST(Megatron, refuses_sequences_that_do_not_divide_once_they_are_known) {
  RunFacts run;
  EXPECT_EQ(refusals(R"({"size": 4, "sequence_parallel": true})", gpt2(), run), "");
  run.seq_length = 1022;
  EXPECT_EQ(refusals(R"({"size": 4})", gpt2(), run), "");
  EXPECT_EQ(refusals(R"({"size": 4, "sequence_parallel": true})", gpt2(), run),
            "sequence_parallel shares sequences of 1022 tokens (seq_length) over 4 ranks, and they do not divide. Use "
            "a seq_length of 1020 "
            "or 1024, or turn sequence_parallel off\n");
  run.position_ranks = 2, run.seq_length = 4;
  EXPECT_EQ(refusals(R"({"size": 4, "sequence_parallel": true})", gpt2(), run),
            "sequence_parallel shares sequences of 4 tokens (seq_length) over 4 ranks in each of 2 parts of context "
            "parallelism, and they "
            "do not divide. Use a seq_length of 8, or turn sequence_parallel off\n");
}

TEST(Megatron, names_keys_that_change_nothing) {
  RunFacts generation;
  generation.training = false;
  const auto notes = planned(R"({"size": 2, "sequence_parallel": true})", gpt2(), generation).no_effects();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].text,
            "sequence_parallel changes nothing: texts of any length are not shared evenly; it is for training");
  EXPECT_EQ(planned(R"({"size": 2, "keep_gathered": true})", gpt2()).no_effects().at(0).text,
            "keep_gathered changes nothing: without sequence_parallel nothing is gathered");
}

TEST(Megatron, says_when_much_of_the_vocabulary_is_padding) {
  EXPECT_TRUE(planned(R"({"size": 4})", gpt2()).costs().empty());
  ModelFacts bytes = gpt2();
  bytes.vocab_size = 257;
  const PlanRecord context = planned(R"({"size": 2})", bytes);
  ASSERT_EQ(context.costs().size(), 1u);
  EXPECT_EQ(context.costs()[0].text,
            "the vocabulary of 257 is padded to 512, a multiple of size x make_vocab_size_divisible_by; less of the "
            "latter pads less");
}

TEST(Megatron, refuses_bad_options) {
  const Host host;
  const auto error = [&](const char* json) {
    return error_of([&] { make_plugin<TensorParallel>(host, "megatron", json); });
  };
  EXPECT_NE(error(R"({"size": -2})").find("size"), std::string::npos);
  EXPECT_NE(error(R"({"make_vocab_size_divisible_by": 0})").find("make_vocab_size_divisible_by"), std::string::npos);
  EXPECT_NE(error(R"({"sequence_paralel": true})").find("sequence_parallel"), std::string::npos) << "a suggestion";
}

// GPT-2 124M, B4 T64, two ranks: half of each activation goes out twice per all-reduce, four of them per block, four at
// the ends.
TEST(Megatron, says_its_traffic_per_step) {
  RunFacts run;
  run.seq_length = 64, run.micro_batch_size = 4, run.accumulation = 1;
  const PlanRecord context = planned(R"({"size": 2})", gpt2(), run);
  double bytes = 0;
  for (const auto& traffic : context.traffics()) {
    EXPECT_EQ(traffic.axis, "tp");
    bytes += traffic.bytes;
  }
  const double activation = 4 * 64 * 768 * 4;
  EXPECT_EQ(bytes, (12 * 8 + 4) * activation / 2);
}

TEST(Megatron, shares_positions_in_order) {
  using Rows = std::vector<RowRange>;
  EXPECT_EQ(even_share({{0, 8}}, 4, 2), (Rows{{4, 2}}));
  EXPECT_EQ(even_share({{0, 4}, {12, 4}}, 2, 1), (Rows{{12, 4}}));
  EXPECT_EQ(even_share({{0, 3}, {13, 3}}, 3, 1), (Rows{{2, 1}, {13, 1}}));
  EXPECT_EQ(error_of([] {
              even_share({{0, 6}}, 4, 0);
            }),
            "tensor_parallel/megatron: sequence_parallel shares 6 positions over 4 ranks, and they do not divide. Use "
            "sequences of a "
            "multiple of 4, or turn sequence_parallel off");
}

}  // namespace
}  // namespace drivetrain::test
