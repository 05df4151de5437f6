// The key `long_context`: what it chooses, for how much memory, beside which keys; and a run with it.
#include <drivetrain/testkit/kit/host.h>

#include "configs/config_files.h"
#include "program/program_fixture.h"
#include "train/long_context.h"
#include "train/plan_config.h"

namespace drivetrain::test {
namespace {

constexpr const char* kSmall = R"({
  "train_steps": 3, "threads": 1, "train_micro_batch_size_per_gpu": 2, "checkpoint_policy": false, "save_final": false,
  "model": {"type": "gpt", "params": {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 64,
            "ffn_hidden_size": 256, "max_position_embeddings": 8192}},
  "dataset": {"type": "synthetic", "params": {"seq_length": 8192}},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "monitors": "jsonl", "long_context": true
})";

Value small(const std::vector<std::pair<std::string, std::string>>& sections = {}) {
  Value config = parse_json(kSmall, "test.json");
  for (const auto& [key, value] : sections) config.set(key, parse_json(value, "test.json"));
  return config;
}

std::unique_ptr<PreparedRun> planned(const Value& config, int64_t ranks) {
  return plan_config(config, "test.json", built_plugins(), setup_of_plan(ranks));
}

// Bytes of a rank by its plan.
double need(const std::vector<std::pair<std::string, std::string>>& sections, int64_t ranks = 1) {
  return planned_memory(planned(small(sections), ranks)->plan).on_device();
}

// What is chosen where a rank has so many bytes; as JSON.
std::string chosen(double bytes, const Value& config, int64_t ranks = 1, int64_t ranks_per_host = 8) {
  LongContextMachine machine;
  machine.device.bytes = bytes, machine.ranks = ranks, machine.ranks_per_host = std::min(ranks, ranks_per_host);
  return choose_long_context(config, machine, [&](const Value& c) { return planned(c, ranks); }).sections.to_json();
}

const std::pair<std::string, std::string> kChunk = {"fused_block", R"({"mlp_chunk": 4096})"},
                                          kFull = {"activation_checkpointing", R"({"type": "full"})"};

TEST(LongContext, takes_the_cheapest_choice_that_fits) {
  const double nothing = need({}), chunk = need({kChunk}), full = need({kChunk, kFull});
  ASSERT_LT(full, chunk);
  ASSERT_LT(chunk, nothing);
  EXPECT_EQ(chosen(nothing, small()), "{}");
  EXPECT_EQ(chosen(nothing - 1, small()), R"({"fused_block":{"mlp_chunk":4096}})");
  EXPECT_EQ(chosen(chunk - 1, small()),
            R"({"fused_block":{"mlp_chunk":4096},"activation_checkpointing":{"type":"full"}})");
  EXPECT_EQ(chosen(full, small()), R"({"fused_block":{"mlp_chunk":4096},"activation_checkpointing":{"type":"full"}})");
}

TEST(LongContext, says_what_the_smallest_choice_needs_where_none_fits) {
  const double full = need({kChunk, kFull});
  try {
    chosen(full - 1, small());
    FAIL() << "it fits";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::out_of_memory);
    expect_says(e.what(), {"long_context: no choice fits", "mlp_chunk", "full", "more ranks or a shorter sequence"});
  }
}

// Rows of a step stay what they were; ranks that are more than the heads take the ring.
TEST(LongContext, lets_ranks_of_a_host_share_a_sequence_before_anything_is_computed_again) {
  const double nothing = need({}, 4);
  EXPECT_EQ(chosen(nothing - 1, small(), 4),
            R"({"context_parallel":{"type":"ulysses","params":{"size":2}},"train_batch_size":8,)"
            R"("gradient_accumulation_steps":null})");
  EXPECT_EQ(chosen(nothing - 1, small(), 4, 1), R"({"fused_block":{"mlp_chunk":4096}})");
  Value one_head = small();
  one_head.set("model", parse_json(R"({"type": "gpt", "params": {"num_layers": 4, "hidden_size": 64, "vocab_size": 64,
    "num_attention_heads": 1, "ffn_hidden_size": 256, "max_position_embeddings": 8192}})",
                                   "test.json"));
  const double alone = planned_memory(planned(one_head, 2)->plan).on_device();
  expect_says(chosen(alone - 1, one_head, 2), {R"("type":"ring","params":{"size":2})"});
}

// A batch of one row for two ranks is refused as it stands.
TEST(LongContext, shares_a_sequence_where_there_are_fewer_rows_than_ranks) {
  Value one_row = small({{"train_batch_size", "1"}, {"train_micro_batch_size_per_gpu", "1"}});
  expect_says(chosen(1e12, one_row, 2), {R"("type":"ulysses","params":{"size":2})", R"("train_batch_size":1)"});
}

TEST(LongContext, leaves_what_the_config_says_itself) {
  const double chunk = need({kChunk, {"activation_checkpointing", "\"none\""}});
  EXPECT_EQ(chosen(chunk, small({{"activation_checkpointing", "\"none\""}})), R"({"fused_block":{"mlp_chunk":4096}})");
  EXPECT_NE(error_of([&] { chosen(chunk - 1, small({{"activation_checkpointing", "\"none\""}})); }), "");
  const double full = need({kFull});
  EXPECT_EQ(chosen(full, small({{"fused_block", R"({"mlp_chunk": 0})"}})),
            R"({"activation_checkpointing":{"type":"full"}})");
  EXPECT_EQ(chosen(need({}, 2) - 1, small({{"context_parallel", "false"}}), 2),
            R"({"fused_block":{"mlp_chunk":4096}})");
}

TEST(LongContext, refuses_keys_that_contradict_it) {
  expect_says(error_of([&] {
                chosen(1e12, small({{"fused_block", "false"}}));
              }),
              {"fused_block is false, and long_context may have to set", "mlp_chunk", "leave fused_block out"});
  for (const auto& [value, part] :
       {std::pair("3", "expected true, false or"), std::pair("\"yes\"", "expected true"),
        std::pair(R"({"memory_gb": 80})", "memory_gib"), std::pair(R"({"memory_gib": -1})", "long_context.memory_gib")})
    expect_says(error_of([&] { planned(small({{"long_context", value}}), 1); }), {part});
}

TEST(LongContext, lets_inputs_of_blocks_wait_on_the_host_of_a_gpu) {
  if (!has_plugins_for("cuda")) GTEST_SKIP() << "this build has no plugins for GPUs";
  const Value config = small({{"device", "\"cuda\""}, {"bf16", R"({"enabled": true})"}});
  Value full = config;
  full.set(kChunk.first, parse_json(kChunk.second, "test.json"));
  full.set(kFull.first, parse_json(kFull.second, "test.json"));
  const double bytes = planned_memory(planned(full, 1)->plan).on_device() - 1;
  EXPECT_EQ(chosen(bytes, config),
            R"({"fused_block":{"mlp_chunk":4096},"activation_checkpointing":{"type":"offload"}})");
}

class LongContextRun : public ProgramTest {};

// The curve of a run without the key; what was chosen stands at the start, in resolved.json and in a plan.
TEST_F(LongContextRun, trains_as_without_and_says_what_it_chose) {
  // Attention over shorter sequences, which are one chunk.
  const std::pair<std::string, std::string> data = {"dataset",
                                                    R"({"type": "synthetic", "params": {"seq_length": 512}})"};
  const double between = (need({data, kChunk}, 2) + need({data, kChunk, kFull}, 2)) / 2;
  std::string text = kSmall;
  const auto set = [&](const std::string& part, const std::string& with) {
    text.replace(text.find(part), part.size(), with);
  };
  set(R"("seq_length": 8192)", R"("seq_length": 512)");
  set(R"("long_context": true)",
      concat(R"("long_context": {"memory_gib": )", between / (1 << 30), R"(}, "context_parallel": false)"));
  write("long.json", text);
  set(R"("long_context": {)", R"("_": {)");
  write("plain.json", text);
  const Ran with = run("launch -n 2 " + path("long.json") + " --set output_dir=" + path("long"));
  ASSERT_EQ(with.code, 0) << with.output;
  expect_says(with.output, {"what the file leaves to rules:", "fused_block", "mlp_chunk",
                            "long_context: sequences of 512", "activation_checkpointing"});
  ASSERT_EQ(run("launch -n 2 " + path("plain.json") + " --set output_dir=" + path("plain")).code, 0);
  const auto long_steps = read_metrics(path("long")), plain_steps = read_metrics(path("plain"));
  ASSERT_EQ(long_steps.size(), plain_steps.size());
  for (size_t i = 0; i < plain_steps.size(); ++i)
    EXPECT_NEAR(long_steps[i].find("loss")->as_double(), plain_steps[i].find("loss")->as_double(), 1e-5) << i;
  const Value resolved = read_json_file(path("long/resolved.json"));
  expect_says(resolved.find("_settled")->to_json(), {"fused_block", "activation_checkpointing", "long_context"});
  EXPECT_EQ(resolved.find("activation_checkpointing")->find("type")->as_string(), "full");
  const Ran plan = run("train " + path("long.json") + " --plan");
  EXPECT_EQ(plan.code, 0) << plan.output;
  expect_says(plan.output, {"long_context: sequences of 512"});
}

}  // namespace
}  // namespace drivetrain::test
