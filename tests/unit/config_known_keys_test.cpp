// Keys that no plugin claims, problems of a whole file, and the resolved configuration.
#include "config_sections_fixture.h"
#include "plugin/kinds.h"

namespace drivetrain {
namespace {

TEST(Sections, Unknown_top_level_keys_get_the_nearest_name) {
  EXPECT_HAS(refusal("\"gradient_acumulation_steps\": 2"),
             "a.json:3:1  gradient_acumulation_steps is not a setting or a section\n   did you mean "
             "\"gradient_accumulation_steps\"?   known here: activation_checkpointing, attention,");
  EXPECT_HAS(refusal("\"optimiser\": {}"), "did you mean \"optimizer\"?");
  EXPECT_EQ(refusal("\"_note\": {\"anything\": 1}, \"$schema\": \"x\""), "");
}

TEST(Sections, Keys_of_DeepSpeed_are_noted_or_refused_with_the_reason) {
  const Problems p = problems_of(R"("wall_clock_breakdown": true)");
  EXPECT_TRUE(p.empty());
  ASSERT_EQ(p.notes().size(), 1u);
  EXPECT_EQ(p.notes()[0].message,
            "wall_clock_breakdown has no effect here: step times are always written to metrics.jsonl");
  EXPECT_TRUE(problems_of(R"("wall_clock_breakdown": false)").notes().empty());
  EXPECT_EQ(refusal(R"("gradient_allreduce_op": "sum")"),
            "a.json:3:1  gradient_allreduce_op: the loss is the mean over all valid tokens");
  EXPECT_EQ(refusal(R"("prescale_gradients": false, "gradient_predivide_factor": 1.0, "communication_data_type": "fp32",
                       "managed_gradient_accumulation": true, "data_types": {"grad_accum_dtype": "fp32"})"),
            "");
  EXPECT_HAS(refusal(R"("managed_gradient_accumulation": false)"), "the runtime decides where a step ends");
  EXPECT_HAS(refusal(R"("autotuning": {"enabled": true})"), "autotuning: not in this version");
  EXPECT_HAS(refusal(R"("amp": {"enabled": true})"), "Apex mixed precision is not supported");
}

TEST(Sections, Keys_within_a_section_that_nobody_claims_have_verdicts_of_their_own) {
  const Problems p = problems_of(
      R"("checkpoint": {"load_universal": true, "tag_validation": "warn"}, "wandb": {"enabled": true, "projct": 1},
                                    "comms_logger": {"enabled": true, "_note": 1})");
  EXPECT_HAS(p.text(), "a.json:3:94  wandb.projct is not a key of wandb\n   did you mean \"project\"?");
  std::string notes;
  for (const Problem& note : p.notes()) notes += note.message + "\n";
  for (const char* key :
       {"checkpoint.load_universal has", "checkpoint.tag_validation has", "wandb has", "comms_logger has"})
    EXPECT_HAS(notes, key);
  EXPECT_HAS(refusal(R"("checkpoint": {"tag_validation": "panic"})"), "it takes \"Ignore\", \"Warn\" or \"Fail\"");
  EXPECT_EQ(refusal(R"("checkpoint": {"use_node_local_storage": false}, "wandb": {"enabled": false, "x": 1})"), "");
}

TEST(Sections, What_DeepSpeed_refuses_together_is_refused) {
  EXPECT_HAS(refusal(R"("prescale_gradients": true, "zero_optimization": {"stage": 2})"), "with ZeRO stages 2 and 3");
  EXPECT_EQ(refusal(R"("prescale_gradients": true, "zero_optimization": {"stage": 1})"), "");
  EXPECT_EQ(refusal(R"("prescale_gradients": true, "zero_optimization": {"stage": 2, "reduce_scatter": false})"), "");
  EXPECT_HAS(refusal(R"("elasticity": {"enabled": true})"), "beside train_batch_size");
  EXPECT_EQ(refusal(R"("elasticity": {"enabled": true, "ignore_non_elastic_batch_info": true})"), "");
}

TEST(Sections, DeepSpeeds_types_that_nobody_answers_to_name_the_nearest_thing) {
  EXPECT_HAS(refusal(R"("optimizer": {"type": "OneBitAdam"})"), "1-bit Adam compresses its communication");
  EXPECT_HAS(refusal(R"("scheduler": {"type": "OneCycle"})"), "the nearest is WarmupCosineLR");
  EXPECT_EQ(refusal(R"("optimizer": {"type": "Adam", "params": {}, "legacy_fusion": false})"), "");
}

TEST(Sections, Every_known_key_says_why) {
  EXPECT_GT(known_sections().keys.size(), 30u);
  for (const auto& [key, fact] : known_sections().keys)
    EXPECT_EQ(fact.reason.empty(), fact.verdict == KeyFact::none) << key;
  EXPECT_EQ(section_of_kind("lr_schedule"), "scheduler");
  EXPECT_EQ(section_of_kind("precision"), "precision");
}

TEST(Sections, All_problems_of_a_file_come_at_once_in_file_order) {
  const std::string text = refusal(
      "\"optimizer\": {\"type\": \"nope\"},\n\"optimzer\": 1,\n\"amp\": {\"enabled\": true},\n\"attention\": 5");
  size_t last = 0;
  for (const char* part : {"a.json:3:23", "a.json:4:1", "a.json:5:1", "a.json:6:14"}) {
    EXPECT_HAS(text, part);
    EXPECT_GE(text.find(part), last);
    last = text.find(part);
  }
}

// -- resolved.json

Value resolve(const Value& config, Problems& problems) {
  const RunSettings settings = read_run_settings(config, "a.json", problems);
  const BatchSizes batch = solve_batch(settings, 2, problems);
  const auto selections = select_plugins(config, kKinds, plugins(), settings.device, problems);
  return resolved_config(settings, batch, selections, kKinds, plugins(), [](const Selection& s) { return s.params; });
}

TEST(Resolved, Loading_it_again_gives_the_same_configuration) {
  for (const char* body :
       {"", R"("monitors": false)", R"("data_parallel": false, "seed": 7)", R"("fused": false)",
        R"("zero_optimization": {"stage": 2}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}})",
        R"("attention": ["flash", "standard"], "monitors": [{"type": "console", "enabled": false}, "csv"])",
        R"("gradient_clipping": 0, "plugins": {"paths": ["x"], "allow": null}, "train_micro_batch_size_per_gpu": 1)"}) {
    Problems problems;
    const Value first = resolve(config_of(body), problems);
    const Value second = resolve(parse_json(first.to_json(2), "resolved.json"), problems);
    EXPECT_EQ(problems.text(), "") << first.to_json(2);
    EXPECT_EQ(first.to_json(2), second.to_json(2)) << body;
    EXPECT_EQ(first, second);
  }
}

TEST(Resolved, It_shows_every_default_and_what_was_switched_off) {
  Problems problems;
  const Value v =
      resolve(config_of(R"("optimizer": {"lr": 1}, "monitors": [{"type": "jsonl", "enabled": false}])"), problems);
  EXPECT_EQ(v.find("train_micro_batch_size_per_gpu")->as_int(), 2);
  EXPECT_EQ(v.find("gradient_accumulation_steps")->as_int(), 1);
  EXPECT_EQ(v.find("optimizer")->to_json(), R"({"type":"adamw","params":{"lr":1}})");
  EXPECT_EQ(v.find("scheduler")->to_json(), R"({"type":"constant","params":{}})");
  EXPECT_EQ(v.find("monitors")->to_json(), R"([{"type":"console","params":{}},{"type":"jsonl","enabled":false}])");
  EXPECT_TRUE(std::filesystem::path(v.find("output_dir")->as_string()).is_absolute());
}

}  // namespace
}  // namespace drivetrain
