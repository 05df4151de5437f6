// Groups of parameters with rates of their own, and frozen ones: the same bits however the state is shared out and
// over stages, the numbers of one process where layers are cut, and those of runs without groups where they say the
// same.
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>

#include "matrix/curve.h"
#include "sharding/bits.h"

namespace drivetrain::test {
namespace {

const char kGroups[] = R"([{"params": "block.*.mlp.*", "roles": ["matrix"], "lr": 0.002},
                           {"roles": ["norm", "bias"], "weight_decay": 0.3, "lr": 0.03},
                           {"params": ["embedding.*"], "frozen": true}])";

// Untied, so that a parameter stands on one stage; the embedding is frozen, and the output layer is not.
Value grouped_config(const char* sections, int64_t micro_batches, const char* groups = kGroups) {
  Value config = parse_json(R"({
    "train_steps": 3, "seed": 11, "train_batch_size": 8, "eval_interval": 2, "monitors": "jsonl", "reduce_every": 0,
    "gradient_clipping": 0.3,
    "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 36, "num_attention_heads": 2,
              "ffn_hidden_size": 76,
              "vocab_size": 97, "max_position_embeddings": 16, "untie_embeddings_and_output_weights": true}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 12}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 3, "warmup_min_lr": 0.001}}})",
                            "test");
  config.set("gradient_accumulation_steps", micro_batches);
  if (groups) config.set("param_groups", parse_json(groups, "groups"));
  const Value more = parse_json(sections, "sections");
  for (const Value::Member& member : more.members()) config.set(member.key, member.value);
  return config;
}

TEST(ParamGroupsOfRuns, have_one_digest_under_every_way_of_sharing_and_over_stages) {
  const Bits wanted = train_bits(grouped_config(R"({"data_parallel": "ddp"})", 2), 2);
  for (const char* sections :
       {R"({"zero_optimization": {"stage": 1, "reduce_bucket_size": 3000}})",
        R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": 3000}})",
        R"({"zero_optimization": {"stage": 3, "reduce_bucket_size": 3000, "stage3_param_persistence_threshold": 100}})",
        R"({"data_parallel": "fsdp"})"})
    EXPECT_EQ(train_bits(grouped_config(sections, 2), 2).text, wanted.text) << sections;
  const char* const stages = R"({"pipeline": {"type": "one_f_one_b", "params": {"stages": 2}}})";
  EXPECT_EQ(train_bits(grouped_config(stages, 2), 4).text, wanted.text) << stages;
  EXPECT_NE(train_bits(grouped_config(R"({"data_parallel": "ddp"})", 2, nullptr), 2).text, wanted.text);
}

TEST(ParamGroupsOfRuns, have_the_numbers_of_one_process_where_layers_are_cut) {
  const Curve alone = run_curve(grouped_config("{}", 2), 1),
              cut = run_curve(grouped_config(R"({"tensor_parallel": {"size": 2}})", 2), 2),
              without = run_curve(grouped_config("{}", 2, nullptr), 1);
  ASSERT_EQ(cut.losses.size(), alone.losses.size());
  for (size_t i = 0; i < cut.losses.size(); ++i) {
    EXPECT_NEAR(cut.losses[i], alone.losses[i], 1e-6 * alone.losses[i]);
    EXPECT_NEAR(cut.norms[i], alone.norms[i], 1e-5 * alone.norms[i]);
  }
  EXPECT_GT(std::abs(without.losses.back() - alone.losses.back()), 1e-4) << "groups change nothing";
}

// Of one process: what a group says is what is trained with.
TEST(ParamGroupsOfRuns, that_say_what_the_optimizer_has_change_no_bit) {
  const std::string plain = train_bits(grouped_config("{}", 1, nullptr), 1).text;
  const char* const same = R"([{"roles": ["matrix", "output"], "lr": 0.01, "weight_decay": 0.1},
                               {"roles": "bias", "weight_decay": 0}])";
  EXPECT_EQ(train_bits(grouped_config(R"({"scheduler": false})", 1, same), 1).text,
            train_bits(grouped_config(R"({"scheduler": false})", 1, nullptr), 1).text);
  EXPECT_NE(plain, train_bits(grouped_config("{}", 1), 1).text);
}

TEST(ParamGroupsOfRuns, leave_frozen_parameters_as_they_began_and_count_them) {
  const Curve first = run_curve(
                  grouped_config(
                      R"({"train_steps": 1, "scheduler": false, "optimizer": {"type": "AdamW", "params": {"lr": 0}}})",
                      1, nullptr),
                  1),
              trained = run_curve(grouped_config("{}", 1), 1);
  int64_t same = 0;
  for (const auto& [name, value] : trained.weights) {
    const bool frozen = name.find("wte") != std::string::npos || name.find("wpe") != std::string::npos;
    EXPECT_EQ(at::equal(value, first.weights.at(name)), frozen) << name;
    same += frozen;
  }
  EXPECT_EQ(same, 2);
  const Value resolved = parse_json(train_bits(grouped_config("{}", 1), 1).resolved, "resolved.json");
  const Value& groups = *resolved.find("_resolved")->find("param_groups");
  ASSERT_EQ(groups.items().size(), 4u);
  EXPECT_EQ(groups.items()[0].find("tensors")->as_int(), 4);
  EXPECT_EQ(groups.items()[0].find("parameters")->as_int(), 2 * 2 * 36 * 76);
  EXPECT_EQ(groups.items()[2].find("parameters")->as_int(), (97 + 16) * 36);
  EXPECT_EQ(resolved.find("param_groups")->items().size(), 3u);
}

}  // namespace
}  // namespace drivetrain::test
