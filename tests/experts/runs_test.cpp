// Whole runs of a mixture whose experts are split over ranks: losses and their terms, norms and final weights are those
// of one process, whatever shares the state, the layers, the sequence or the chain of units beside.
//
// At the same number of ranks neither who has the experts nor who owns the state changes a bit, where there is no
// accumulation. Runs on other numbers of ranks are compared within a few roundings of float32: their sums over
// micro-batches and ranks have another order.
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>

#include "evaluation/sets.h"
#include "experts/mixture_runs.h"
#include "kernels/product/group.h"
#include "support/memory_checkpoint.h"

namespace drivetrain::test {
namespace {

TEST(ExpertRuns, have_the_numbers_of_one_process_whoever_owns_the_state) {
  for (const char* owner : {kDdp, kZero1, kZero2, kZero3, kFsdp})
    for (const auto& [ep, ranks] : std::vector<std::pair<int64_t, int>>{{1, 2}, {4, 4}, {2, 4}}) {
      SCOPED_TRACE(concat(owner, ", ep ", ep, " on ", ranks, " ranks"));
      expect_same(train(split(ep, owner), ranks), alone());
    }
}

// Accumulation 1; one expert a rank.
TEST(ExpertRuns, with_one_expert_a_rank) {
  expect_same(train(R"("expert_parallel": 8, "data_parallel": "ddp")", 8), alone());
}

TEST(ExpertRuns, beside_strategies_that_split_layers_sequences_and_the_chain) {
  const std::string tp = R"("tensor_parallel": {"size": 2, "make_vocab_size_divisible_by": 7)";
  for (const auto& [sections, ranks] : std::vector<std::pair<std::string, int>>{
           {split(1, tp + "}"), 2},
           {split(2, tp + "}, ") + kZero1, 4},
           {split(1, tp + R"(, "sequence_parallel": true})"), 2},
           {split(2, tp + R"(, "sequence_parallel": true}, )") + kZero3, 4},
           {split(1, R"("context_parallel": {"type": "ring", "params": {"size": 2}}, )") + kDdp, 2},
           {split(2, R"("context_parallel": {"type": "ring", "params": {"size": 2}}, )") + kFsdp, 4},
           {split(2, R"("context_parallel": {"type": "ulysses", "params": {"size": 2}}, )") + kZero1, 4},
           {split(
                2,
                tp + R"(, "sequence_parallel": true}, "context_parallel": {"type": "ring", "params": {"size": 2}}, )") +
                kDdp,
            8},
           {split(2, R"("pipeline": {"type": "one_f_one_b", "params": {"stages": 2}}, )") + kDdp, 4},
           {split(2, R"("pipeline": {"type": "zero_bubble_h1", "params": {"stages": 2}}, )") + kZero1, 4}}) {
    SCOPED_TRACE(sections);
    expect_same(train(sections, ranks), alone());
  }
}

// Groups of ranks that share the state; state on the host.
TEST(ExpertRuns, with_groups_and_offload) {
  for (const auto& [owner, ranks] : std::vector<std::pair<const char*, int>>{
           {R"("zero_optimization": {"stage": 3, "mics_shard_size": 2, "stage3_param_persistence_threshold": 40})", 8},
           {R"("data_parallel": {"type": "fsdp", "params": {"shard_group_size": 2}})", 8},
           {R"("zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}})", 4}}) {
    SCOPED_TRACE(owner);
    expect_same(train(split(2, owner), ranks), alone());
  }
}

// Rows travel in 16 bits as everything does. Choices may differ where scores are within a rounding.
TEST(ExpertRuns, in_16_bits) {
  const char* const bf16 = R"("bf16": {"enabled": true}, )";
  const Trained one = train(std::string(bf16) + kDdp, 1);
  for (const char* owner : {kDdp, kZero3}) {
    const Trained found = train(split(2, bf16 + std::string(owner)), 2);
    for (size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_NEAR(found.losses[i], one.losses[i], 0x1p-7 * one.losses[i]) << owner << ", step " << i + 1;
  }
}

// Sets that are evaluated while a run trains, also where ranks have blocks of other sizes or none.
TEST(ExpertRuns, evaluate_as_one_process_does) {
  const TempFolder folder;
  const std::string sets = eval_section(folder) + R"(, "model": {"type": "gpt", "params": {"family": "mixtral",
    "num_layers": 2, "hidden_size": 48, "num_attention_heads": 4, "num_query_groups": 4, "ffn_hidden_size": 24,
    "vocab_size": 257, "max_position_embeddings": 64, "num_experts": 8, "num_experts_per_tok": 2}}, )";
  const RunResult one = run_with_sets(folder, "one", sets + kDdp);
  for (int n = 0; const auto& [owner, ranks] : std::vector<std::pair<const char*, int>>{{kDdp, 2}, {kZero3, 4}}) {
    const RunResult found = run_with_sets(folder, concat("run", ++n), sets + split(2, owner), ranks);
    ASSERT_EQ(found.metrics.size(), one.metrics.size());
    for (size_t step = 0; step < one.metrics.size(); ++step) {
      const Value wanted = set_figures(one.metrics[step]), figures = set_figures(found.metrics[step]);
      ASSERT_EQ(figures.members().size(), wanted.members().size());
      for (const Value::Member& m : wanted.members())
        EXPECT_NEAR(figures.find(m.key)->as_double(), m.value.as_double(), 1e-5 * std::abs(m.value.as_double()))
            << m.key << ", step " << step + 1 << ", " << owner;
    }
  }
}

// The same operations in the same order.
TEST(ExpertRuns, recompute_changes_no_bit) {
  for (const char* owner : {kDdp, kZero3}) {
    const Trained kept = train(split(2, owner), 4);
    for (const char* policy : {"full", "selective"}) {
      SCOPED_TRACE(policy);
      const Trained again = train(split(2, owner) + concat(R"(, "activation_checkpointing": ")", policy, "\""), 4);
      EXPECT_EQ(again.losses, kept.losses);
      EXPECT_EQ(again.norms, kept.norms);
      for (const auto& [name, value] : kept.weights) EXPECT_TRUE(at::equal(again.weights.at(name), value)) << name;
    }
  }
}

void expect_same_bits(const Trained& found, const Trained& wanted) {
  EXPECT_EQ(found.losses, wanted.losses);
  EXPECT_EQ(found.norms, wanted.norms);
  ASSERT_EQ(found.weights.size(), wanted.weights.size());
  for (const auto& [name, value] : wanted.weights) EXPECT_TRUE(at::equal(found.weights.at(name), value)) << name;
}

// More than two choices, whose sum has an order. Blocks of the norm are those of whole experts.
constexpr const char* kManyChoices = R"({"num_experts": 24, "num_experts_per_tok": 5, "moe_intermediate_size": 32})";
// Fewer rows than experts.
constexpr const char* kFewRows = R"({"num_experts": 64, "num_experts_per_tok": 1, "moe_intermediate_size": 32})";

Trained train_mixture(const std::string& sections, int ranks, const char* model) {
  return train_config(with_model(config_with(sections), model), ranks);
}

// Without accumulation: sums over a token's experts, over the rows of an expert and over ranks are parts of one tree,
// as the kernel of groups computes them.
TEST(ExpertRuns, owners_of_the_experts_and_of_the_state_give_the_same_bits) {
  if (!kernels::multiplies_groups()) return;
  const auto run = [](int64_t ep, const std::string& owner, const char* model) {
    return train_mixture(split(ep, owner) + R"(, "train_micro_batch_size_per_gpu": 2)", 4, model);
  };
  for (const char* model : {kManyChoices, kFewRows}) {
    const Trained one = run(1, kDdp, model);
    for (const int64_t ep : {1, 2, 4})
      for (const char* owner : {kDdp, kZero1, kZero3, kFsdp}) {
        SCOPED_TRACE(concat(owner, ", ep ", ep, ", ", model));
        expect_same_bits(run(ep, owner, model), one);
      }
  }
}

TEST(ExpertRuns, owners_of_the_experts_give_the_same_bits_on_eight_ranks) {
  if (!kernels::multiplies_groups()) return;
  const Trained one = train_mixture(split(1, kDdp), 8, kManyChoices);
  for (const int64_t ep : {2, 8}) expect_same_bits(train_mixture(split(ep, kDdp), 8, kManyChoices), one);
}

// They sum every micro-batch over ranks before the next.
TEST(ExpertRuns, owners_of_the_experts_give_the_same_bits_where_micro_batches_are_reduced) {
  if (!kernels::multiplies_groups()) return;
  for (const char* owner : {kZero2, kZero3, kFsdp}) {
    const Trained one = train_mixture(split(1, owner), 4, kManyChoices);
    for (const int64_t ep : {2, 4}) {
      SCOPED_TRACE(concat(owner, ", ep ", ep));
      expect_same_bits(train_mixture(split(ep, owner), 4, kManyChoices), one);
    }
  }
}

// Whatever cuts layers and the chain beside.
TEST(ExpertRuns, owners_of_the_experts_give_the_same_bits_beside_cuts_of_layers_and_of_the_chain) {
  if (!kernels::multiplies_groups()) return;
  for (const char* beside : {R"("tensor_parallel": {"size": 2, "make_vocab_size_divisible_by": 7})",
                             R"("pipeline": {"type": "one_f_one_b", "params": {"stages": 2}})"}) {
    const std::string sections = concat(beside, ", ", kZero2);
    SCOPED_TRACE(sections);
    expect_same_bits(train_mixture(split(2, sections), 4, kManyChoices),
                     train_mixture(split(1, sections), 4, kManyChoices));
  }
}

// Checkpoints have whole parameters, whoever held which expert.
TEST(ExpertRuns, go_on_from_a_checkpoint_of_another_split) {
  for (const auto& [first, first_ranks, second, second_ranks] :
       std::vector<std::tuple<std::string, int, std::string, int>>{
           {split(4, kZero1), 4, split(2, kZero3), 2}, {split(2, kFsdp), 4, "", 1}, {"", 1, split(4, kDdp), 4}}) {
    SCOPED_TRACE(concat(first, " on ", first_ranks, ", then ", second, " on ", second_ranks));
    const auto part = [](const std::string& sections, int ranks, const Checkpoint* from, int64_t last) {
      Value config = config_with(sections);
      config.set("monitors", false);
      return run_part(config, ranks, from, last);
    };
    const RunPart saved = part(first, first_ranks, nullptr, 2), rest = part(second, second_ranks, &saved.end, 4);
    ASSERT_EQ(rest.figures.size(), 2u);
    for (const auto& [step, figures] : rest.figures) {
      const auto at = static_cast<size_t>(step - 1);
      EXPECT_NEAR(figures.first, alone().losses.at(at), 4e-6 * alone().losses[at]) << "step " << step;
      EXPECT_NEAR(figures.second, alone().norms[at], 2e-5 * alone().norms[at]) << "step " << step;
    }
  }
}

Trained with_mistake(const std::string& mistake, const char* policy) {
  return train(split(2, kDdp) + concat(R"(, "activation_checkpointing": ")", policy,
                                       R"(", "strategy": {"type": "mistaken_experts", "params": {"mistake": ")",
                                       mistake, R"("}})"),
               2);
}

// How far a run is from the right one, relative, in losses, norms and the loss for balance: what expect_same compares.
double deviation(const Trained& found) {
  double most = 0;
  for (const auto& list : {&Trained::losses, &Trained::norms, &Trained::balance})
    for (size_t i = 0; i < (found.*list).size(); ++i)
      most = std::max(most, std::abs((found.*list)[i] / (alone().*list)[i] - 1));
  return most;
}

TEST(ExpertRuns, find_planted_mistakes) {
  EXPECT_LT(deviation(with_mistake("none", "none")), 2e-5);
  for (const char* mistake : {"dropped", "averaged", "weighed_before", "divided"})
    EXPECT_GT(deviation(with_mistake(mistake, "none")), 1e-3) << mistake;
}

// Other choices in the second forward of a unit than in its first change nothing where all is kept.
TEST(ExpertRuns, find_choices_that_are_made_anew_under_recompute) {
  const Trained kept = with_mistake("routed_anew", "none");
  EXPECT_LT(deviation(kept), 2e-5);
  EXPECT_EQ(with_mistake("none", "full").norms, kept.norms);
  const Trained found = with_mistake("routed_anew", "full");
  EXPECT_NE(found.norms, kept.norms);
  EXPECT_GT(deviation(found), 1e-3);
}

}  // namespace
}  // namespace drivetrain::test
