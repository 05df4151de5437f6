// What attention, datasets, optimizers and others return is looked at where it comes in: plugin, call, what was wanted
// and found.
#include "misdeeds/misdeeds_fixture.h"

namespace drivetrain::test {
namespace {

TEST_F(Misdeeds, what_attention_returns_is_compared_with_what_it_was_given) {
  // By the hand-written blocks and by the model's own.
  for (const std::string blocks : {"", " --set fused_block=false"}) {
    const auto blamed = [&](const char* deed, const std::vector<std::string>& parts) {
      expect_blamed(misdeed("attention", "", deed) + blocks, 3, parts);
    };
    blamed("no out", {"in attention/misdeed, hook forward: returned a wrong out: wanted float32 [4, 8, 2, 8] on cpu, "
                      "found no tensor"});
    blamed("double out", {"in attention/misdeed, hook forward: returned a wrong out", "found float64 [4, 8, 2, 8]"});
    blamed("no lse", {"returned a wrong lse: wanted float32 [4, 2, 8] on cpu, found no tensor"});
    blamed("two gradients", {"in attention/misdeed, hook backward: wanted three tensors, dq, dk and dv; found 2"});
    blamed("no dk", {"in attention/misdeed, hook backward: returned a wrong dk: found no tensor"});
    blamed("turned dq", {"returned a wrong dq: wanted float32 [4, 8, 2, 8] on cpu, found float32 [4, 2, 8, 8]"});
  }
}

TEST_F(Misdeeds, an_attention_that_does_nothing_wrong_trains) {
  const Ran ran =
      train(misdeed("attention", "", "") + misdeed("optimizer", "", "") + misdeed("dataset", "", "") + here());
  EXPECT_EQ(ran.code, 0) << ran.output;
}

TEST_F(Misdeeds, what_a_dataset_reads_is_compared_with_what_was_asked_for) {
  expect_blamed(misdeed("dataset", "", "no labels"), 3,
                {"in dataset/misdeed, hook read, step 3: returned a wrong labels_BS", "found no tensor"});
  expect_blamed(misdeed("dataset", "", "short"), 3,
                {"wrong labels_BS: wanted int64 [4, 8] on cpu, found int64 [4, 7]"});
  expect_blamed(misdeed("dataset", "", "float"), 3,
                {"wrong tokens_BS: wanted int64 [4, 8] on cpu, found float32 [4, 8]"});
  expect_blamed(misdeed("dataset", "", "unannounced documents"), 3,
                {"in dataset/misdeed, hook read, step 3: set cu_seqlens", "documents = false"});
  expect_blamed(misdeed("dataset", "", "late position"), 3,
                {"wrong position_ids_BS: 1 in row 0, column 0; wanted 0 to the column"});
}

TEST_F(Misdeeds, an_optimizers_groups_state_and_tensors_are_looked_at) {
  expect_blamed(misdeed("optimizer", "", "group"), 3,
                {"in optimizer/misdeed, hook group_of: gave ", " the group 5; there are groups 0 to 0"});
  expect_blamed(misdeed("optimizer", "", "state"), 3,
                {"in optimizer/misdeed, hook state: its state \"moment\" is no tensor"});
  expect_blamed(
      misdeed("optimizer", "", "shape"), 3,
      {"in optimizer/misdeed, hook update: changed the value of ", ": wanted float32 [", "found float32 [1]"});
  expect_blamed(misdeed("optimizer", "", "memory"), 3,
                {"in optimizer/misdeed, hook update: gave the value of ", "other memory"});
}

TEST_F(Misdeeds, other_kinds_are_looked_at_likewise) {
  expect_blamed(misdeed("lr_schedule", "", "nan"), 3, {"in lr_schedule/misdeed, hook at: returned lr nan"});
  expect_blamed(misdeed("lr_schedule", "", "negative"), 3, {"in lr_schedule/misdeed, hook at: returned lr -"});
  expect_blamed(misdeed("recompute", "", "no hold"), 3, {"in recompute/misdeed, hook hold, unit ", "returned nothing"});
  expect_blamed(misdeed("recompute", "", "empty hold"), 3,
                {"in recompute/misdeed, hook restore, unit ", "tensors that were held, found 0"});
  expect_blamed(misdeed("strategy", "", "reserved figure"), 3,
                {"in strategy/misdeed, hook step_begin: metric(\"loss\"): the runtime has a figure"});
  expect_blamed(misdeed("strategy", "", "wide figure"), 3,
                {"hook step_begin: metric(\"mine\"): wanted one element, found a tensor of shape [2]"});
}

TEST_F(Misdeeds, factories_layers_and_units_that_are_none_are_named) {
  expect_blamed(misdeed("strategy", "", "no factory"), 3, {"in strategy/misdeed, hook build: left no layer factory"});
  expect_blamed(misdeed("strategy", "", "no layer"), 3,
                {"in strategy/misdeed, hook linear, layer block.0.attn.qkv: returned null; wanted a layer"});
  expect_blamed(misdeed("strategy", "", "no block"), 3,
                {"in strategy/misdeed, hook block, unit block.0: returned null; wanted a unit"});
  expect_blamed(misdeed("strategy", "", "drop a unit"), 3,
                {"in strategy/misdeed, hook attach: left ", "units in the list of "});
}

// Alone it is right. With a decorator further inside, what that one does would get lost.
TEST_F(Misdeeds, a_factory_that_does_not_ask_the_one_inside_is_named_where_that_decorates) {
  const std::string own_layers = misdeed("precision", "", "own layers");
  EXPECT_EQ(train(own_layers + here()).code, 0);
  expect_blamed(own_layers + misdeed("strategy", "", "add terms"), 3,
                {"precision/misdeed makes the layer block.0.attn.qkv itself", "LayerFactory::linear",
                 "so that strategy/misdeed, which decorates it there, would be without effect"});
  // Embeddings are asked for inside.
  EXPECT_EQ(train(own_layers + misdeed("strategy", "", "freeze") + here()).code, 0);
}

// Before a step begins, and in a plan: stages that wait for each other would show as a peer that is late.
TEST_F(Misdeeds, programs_of_all_stages_are_looked_at_together) {
  for (const std::string plan : {"", " --plan"}) {
    const auto blamed = [&](int64_t ranks, const char* deed, const std::vector<std::string>& parts) {
      expect_blamed(launch(ranks, misdeed("schedule", "", deed) + here() + plan), 3, parts);
    };
    blamed(1, "no backward", {"schedule/misdeed: ", "stage 0: micro-batch 0 of chunk 0 has no backward"});
    blamed(1, "many slots", {"schedule/misdeed: uses ", " slots in stage 0; wanted 1 to "});
    blamed(2, "waiting", {"schedule/misdeed: ", "wait for each other", "stage 0 waits in recv_backward 0.0"});
    blamed(2, "same piece", {"schedule/misdeed: puts piece 0 on chunk 0 of stage 1 and on chunk 0 of stage 0"});
  }
}

// It could have a window of its own, which blocks of keys would not show: nothing of it is in the arguments.
TEST_F(Misdeeds, an_attention_that_says_nothing_of_partial_keys_or_heads_is_not_given_parts) {
  const auto refused = [&](const std::string& section, const std::vector<std::string>& parts) {
    expect_blamed(launch(2, misdeed("attention", "", "") + " --set '" + section + "'" + here()), 2, parts);
  };
  refused("context_parallel={\"type\":\"ring\",\"params\":{\"size\":2}}",
          {"context_parallel/ring: needs attention.partial_keys", "window", "AttentionAbilities::partial_keys",
           "context_parallel/ulysses", "attention/misdeed (--set", "does not offer",
           "attention/flash and attention/standard do"});
  refused("context_parallel={\"type\":\"ulysses\",\"params\":{\"size\":2}}",
          {"context_parallel/ulysses: needs attention.partial_heads", "AttentionAbilities::partial_heads",
           "attention/misdeed"});
  refused("tensor_parallel={\"size\":2}", {"tensor_parallel/megatron: needs attention.partial_heads",
                                           "AttentionAbilities::partial_heads", "attention/misdeed"});
}

}  // namespace
}  // namespace drivetrain::test
