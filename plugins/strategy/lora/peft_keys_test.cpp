// PEFT's adapter_config.json as the section of a config: what it writes by itself is taken, what would change the
// computation is refused, words that choose nothing are refused.
#include "peft_keys.h"

#include <gtest/gtest.h>

#include <drivetrain/plan_record.h>
#include <drivetrain/toolkit/layers/plain_layers.h>

#include "options.h"
#include "peft_folder.h"
#include "support/plugin_under_test.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

// As PEFT 0.21.2 writes it for a Llama, with nothing but r, lora_alpha and target_modules chosen.
constexpr const char* kByPeft = R"({
  "alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null, "auto_mapping": null,
  "base_model_name_or_path": null, "bias": "none", "corda_config": null, "ensure_weight_tying": false,
  "eva_config": null, "exclude_modules": null, "fan_in_fan_out": false, "inference_mode": true,
  "init_lora_weights": true, "kasa_config": null, "layer_replication": null, "layers_pattern": null,
  "layers_to_transform": null, "loftq_config": {}, "lora_alpha": 4, "lora_bias": false, "lora_dropout": 0.0,
  "lora_ga_config": null, "megatron_config": null, "megatron_core": "megatron.core", "modules_to_save": null,
  "monteclora_config": null, "peft_type": "LORA", "peft_version": "0.21.2", "qalora_group_size": 16, "r": 2,
  "rank_pattern": {}, "revision": null, "target_modules": ["up_proj"], "target_parameters": null,
  "task_type": "CAUSAL_LM", "trainable_token_indices": null, "use_bdlora": null, "use_dora": false,
  "use_qalora": false, "use_rslora": false, "velora_config": null})";

WeightRules two_layers() {
  WeightRules rules;
  rules.prefix = "model.";
  for (const char* layer : {"0", "1"})
    for (const char* part : {"up_proj", "down_proj"})
      rules.rules.push_back({concat("block.", layer, ".mlp.", part, ".weight"),
                             {{concat("layers.", layer, ".mlp.", part, ".weight"), 8}},
                             false});
  return rules;
}

// A plan of a run whose model is built: what is refused, and what is said to have no effect.
struct Planned {
  explicit Planned(const std::string& options, const WeightRules& rules = two_layers())
      : strategy(make_plugin<Strategy>(host, "lora", options)) {
    builder.layers = make_plain_layers(builder.attention());
    builder.weight_rules = [rules](const std::string&) { return rules; };
    strategy->build(builder);
    for (const WeightRule& rule : rules.rules) {
      LinearSpec spec;
      spec.name = rule.param.substr(0, rule.param.rfind('.')), spec.in = 8, spec.out = 8;
      builder.layers->linear(spec);
    }
    RunFacts run;
    run.training = true;
    PlanRecord context({}, run);
    context.set_plugin("strategy/lora");
    strategy->plan(context);
    for (const auto& refusal : context.refusals()) refused += refusal.text + "\n";
    for (const auto& note : context.no_effects()) idle.push_back(note.text);
  }
  const Host host;
  const Mesh mesh{{}, 0, 1, nullptr};
  const ModelFacts facts;
  Builder builder{nullptr, nullptr, mesh, facts};
  std::unique_ptr<Strategy> strategy;
  std::string refused;
  std::vector<std::string> idle;
};

Value with(const std::string& key, const Value& value) {
  Value config = parse_json(kByPeft, "test");
  config.set(key, value);
  return config;
}

TEST(PeftKeys, a_file_of_peft_is_a_section_and_what_changes_nothing_is_named_once) {
  const Planned planned(kByPeft);
  EXPECT_EQ(planned.refused, "");
  ASSERT_EQ(planned.idle.size(), 1u);
  for (const char* key : {"inference_mode", "task_type", "megatron_core", "peft_version"})
    EXPECT_NE(planned.idle[0].find(key), std::string::npos) << planned.idle[0];
  for (const char* key : {"use_dora", "bias", "peft_type", "revision", "loftq_config"})
    EXPECT_EQ(planned.idle[0].find(key), std::string::npos) << planned.idle[0];
  EXPECT_TRUE(Planned(R"({"r": 2, "targets": ["up_proj"]})").idle.empty());
}

// Every key that PEFT's file gets here is taken back, so that no key is known to one side alone.
TEST(PeftKeys, every_key_of_the_file_that_is_written_is_taken) {
  const Planned planned(kByPeft);
  const Value written = planned.strategy->weight_folders().at(0).rules.config;
  for (const Value::Member& member : written.members())
    EXPECT_TRUE(lora::find_peft_key(member.key) || lora::option_table().find(member.key)) << member.key;
  EXPECT_EQ(Planned(written.to_json()).refused, "");
}

TEST(PeftKeys, values_that_would_change_the_computation_are_refused_with_the_reason) {
  const std::pair<Value, const char*> cases[] = {
      {with("use_dora", true), "magnitudes of weights (DoRA); wanted null or false"},
      {with("bias", "all"), "biases of the base stay as they are"},
      {with("peft_type", "LOHA"), "\"LOHA\" is no adapter of this form; wanted \"LORA\""},
      {with("lora_bias", true), "biases of adapters"},
      {with("use_qalora", true), "QA-LoRA"},
      {with("target_parameters", Value(Value::Array{"mlp.experts.up_proj"})), "adapters of stacked experts"},
      {with("layer_replication", Value(Value::Array{0, 1})), "layers that are there several times"},
  };
  for (const auto& [config, said] : cases) {
    const std::string text = error_of([&, &config = config] { Planned planned(config.to_json()); });
    EXPECT_NE(text.find(said), std::string::npos) << text;
  }
}

TEST(PeftKeys, values_of_another_type_and_alphas_of_0_are_refused_by_their_key) {
  const Value text("x"), list(Value::Array{"x"}), zero(Value::Object{{"up_proj", 0}});
  const std::pair<Value, const char*> cases[] = {
      {with("layers_to_transform", list), "layers_to_transform: wanted the number of a layer or a list of them"},
      {with("layers_to_transform", text), "layers_to_transform: wanted"},
      {with("target_modules", Value(Value::Array{3})), "(targets): wanted a list of module names or a regular expr"},
      {with("rank_pattern", Value(3)), "rank_pattern: wanted an object of module names and numbers, found integer"},
      {with("rank_pattern", Value(Value::Object{{"up_proj", "b"}})),
       R"(rank_pattern: "up_proj" has "b"; wanted a rank)"},
      {with("rank_pattern", zero), "rank_pattern: \"up_proj\" has 0; wanted a rank of at least 1"},
      {with("alpha_pattern", zero), "alpha_pattern: \"up_proj\" has 0; wanted a number other than 0"},
      {with("lora_alpha", 0), "lora_alpha: is 0, with which adapters add nothing and learn nothing"},
  };
  for (const auto& [config, said] : cases) {
    const std::string refused = error_of([&, &config = config] { Planned planned(config.to_json()); });
    EXPECT_NE(refused.find(said), std::string::npos) << refused << "\nwanted: " << said;
  }
}

TEST(PeftKeys, words_that_choose_nothing_are_refused) {
  const std::pair<Value, const char*> cases[] = {
      {with("target_modules", Value(Value::Array{"up_prj"})), "target_modules (targets): no module"},
      {with("exclude_modules", Value(Value::Array{"nosuch"})),
       "exclude_modules: no module of the model is named \"nosuch\""},
      {with("exclude_modules", "nosuch.*"), "exclude_modules: no module of the model matches the regular expression"},
      {with("layers_to_transform", Value(Value::Array{0, 9})),
       "layers_to_transform: there is no layer 9; the model's are 0 to 1"},
      {with("rank_pattern", Value(Value::Object{{"down_proj", 4}})), "rank_pattern: \"down_proj\" has no adapter"},
      {with("alpha_pattern", Value(Value::Object{{"down_proj", 4}})), "alpha_pattern: \"down_proj\" has no adapter"},
      {with("r", 9), "r (rank): 9 is larger than model.layers.0.mlp.up_proj of [8, 8] has room for; use at most 8"},
      {with("rank_pattern", Value(Value::Object{{"up_proj", 9}})), "rank_pattern: 9 is larger than"},
  };
  for (const auto& [config, said] : cases) {
    const Planned planned(config.to_json());
    EXPECT_NE(planned.refused.find(said), std::string::npos) << planned.refused;
  }
  EXPECT_EQ(Planned(with("exclude_modules", Value(Value::Array{"down_proj"})).to_json()).refused, "")
      << "a module that is not a target may be named";
}

// As GPT-NeoX lays out its queries, keys and values.
TEST(PeftKeys, all_linear_layers_but_one_that_lies_in_several_parameters) {
  WeightRules rules = two_layers();
  for (const char* half : {"first", "second"})
    rules.rules.push_back(
        {concat("block.0.attn.", half, ".weight"), {{"layers.0.attn.query_key_value.weight", 8}}, false});
  const Value config = with("target_modules", "all-linear");
  const std::string refused = Planned(config.to_json(), rules).refused;
  EXPECT_NE(refused.find("name it in exclude_modules: [\"query_key_value\"]"), std::string::npos) << refused;
  Value without = config;
  without.set("exclude_modules", Value(Value::Array{"query_key_value"}));
  EXPECT_EQ(Planned(without.to_json(), rules).refused, "") << "the way out has to be one";
}

}  // namespace
}  // namespace drivetrain
