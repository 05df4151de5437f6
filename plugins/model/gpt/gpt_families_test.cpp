// Tiny models of every family, as transformers wrote them: logits in float64 against those that it computed in float32,
// what is written again, and families that a user describes.
#include <ATen/ops/cat.h>

#include <set>

#include <drivetrain/plan_record.h>
#include <drivetrain/safetensors.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "hf_config.h"
#include "test_hf_configs.h"
#include "test_model.h"

namespace drivetrain::test {
namespace {

const char* const kNames[] = {"gpt2",     "llama",   "llama_biases", "mistral",   "qwen2",    "qwen3",
                              "phi3",     "olmo",    "olmo2",        "olmo3",     "smollm3",  "gemma",
                              "gemma2",   "gemma3",  "granite",      "internlm2", "stablelm", "starcoder2",
                              "gpt_neox", "mixtral", "olmoe",        "qwen2_moe", "qwen3_moe"};

std::string from(const std::string& folder, const std::string& more = "") {
  return "{\"from\": \"" + folder + "\"" + more + "}";
}

// Values of the folder by our rules. Returns the names that no rule read.
std::set<std::string> fill_from(BuiltModel& built, const WeightRules& rules, const std::string& folder) {
  const SafetensorsFile file = SafetensorsFile::open(folder + "/model.safetensors");
  std::set<std::string> left;
  for (const std::string& name : file.names()) left.insert(name);
  built.fill([&](const Param& param) {
    Tensors parts;
    for (const WeightRule& rule : rules.rules) {
      if (rule.param != param.name) continue;
      for (const WeightPart& part : rule.parts) {
        const std::string name = part.prefixed ? rules.prefix + part.name : part.name;
        const at::Tensor whole = file.tensor(name);
        parts.push_back((rule.transposed ? whole.t() : whole).narrow(0, part.first, part.rows));
        left.erase(name);
      }
    }
    EXPECT_FALSE(parts.empty()) << param.name;
    return parts.empty() ? at::zeros(param.layout.global_shape) : at::cat(parts);
  });
  return left;
}

at::Tensor logits_of(Model& model, const std::string& folder, const at::Tensor& tokens) {
  RunFacts run;
  run.seq_length = tokens.size(1);
  PlanRecord plan(model.facts(), run);
  model.plan(plan);
  BuiltModel built(model);
  EXPECT_EQ(fill_from(built, model.weight_rules("hf"), folder), std::set<std::string>());
  built.context.mode_ = Mode::evaluate;
  return built.forward(tokens, {}).detach();
}

at::Tensor golden_tokens() {
  const at::Tensor steps = SafetensorsFile::open(kGoldenFamilies + "batches.safetensors").tensor("tokens");
  return steps[0][0].narrow(1, 0, steps.size(3) - 1).contiguous();
}

class GptFamily : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string folder_ = kGoldenFamilies + GetParam();
};

TEST_P(GptFamily, computes_what_transformers_computes) {
  const auto model = gpt(from(folder_));
  const at::Tensor wanted = SafetensorsFile::open(kGoldenFamilies + "logits.safetensors").tensor(GetParam()),
                   found = logits_of(*model, folder_, golden_tokens());
  EXPECT_LT((found - wanted).abs().max().item<double>(), 1e-5 * (1 + wanted.abs().max().item<double>()));
}

// What a file says stays as it is; what other programs read is added.
TEST_P(GptFamily, keeps_what_came_in) {
  const Value came = read_json_file(folder_ + "/config.json"), written = gpt(from(folder_))->weight_rules("hf").config;
  for (const Value::Member& member : came.members()) {
    if (member.key == "rope_scaling" && member.value.is_null()) continue;
    ASSERT_NE(written.find(member.key), nullptr) << member.key;
    EXPECT_EQ(written.find(member.key)->to_json(), member.value.to_json()) << member.key;
  }
  std::set<std::string> added;
  for (const Value::Member& member : written.members())
    if (!came.find(member.key)) added.insert(member.key);
  for (const char* known : {"dtype", "torch_dtype", "rope_theta", "rope_scaling", "rope_parameters", "rotary_emb_base",
                            "rotary_pct", "partial_rotary_factor", "rope_local_base_freq", "num_experts"})
    added.erase(known);
  EXPECT_EQ(added, std::set<std::string>());
}

// A file of options alone reads back as the same model, in the old spellings of rope and in the new ones.
TEST_P(GptFamily, is_written_from_nothing_so_that_it_reads_back) {
  const gpt::FolderConfig read = gpt::read_folder(folder_, nullptr).value();
  const Value written = gpt::write_config(*read.family, read.shape, Value());
  for (const std::set<std::string>& without : {std::set<std::string>{},
                                               {"rope_parameters"},
                                               {"rope_theta", "rope_scaling", "rotary_emb_base", "rotary_pct"}}) {
    Value config = written;
    for (const std::string& key : without) config.erase(key);
    const gpt::FolderConfig again = gpt::parse_config(config, "written");
    EXPECT_EQ(gpt::facts_of(again.shape).to_json(), gpt::facts_of(read.shape).to_json());
    EXPECT_TRUE(again.unknown.empty()) << again.unknown[0].first;
  }
  EXPECT_EQ(gpt::misfit(*read.family, read.shape), "");
}

// The family's name stands for what its models have in common.
TEST_P(GptFamily, is_made_by_name_and_sizes) {
  const gpt::FolderConfig read = gpt::read_folder(folder_, nullptr).value();
  Value options = gpt::facts_of(read.shape), common = gpt::family_options(*read.family, read.shape.hidden);
  for (const Value::Member& member : common.members())
    if (const Value* const there = options.find(member.key); there && *there == member.value) options.erase(member.key);
  options.set("family", read.family->model_type);
  const Host host;
  const auto model = make_plugin_from<Model>(host, "gpt", options);
  EXPECT_EQ(model->facts().parameters, read.shape.parameters());
  EXPECT_EQ(model->weight_rules("hf").config, gpt::write_config(*read.family, read.shape, Value()));
}

// Whatever the family leaves open, the folder says what the model computed with.
TEST_P(GptFamily, from_a_name_and_sizes_alone_is_written_as_what_it_is) {
  const gpt::FolderConfig read = gpt::read_folder(folder_, nullptr).value();
  Value options = Value::object();
  options.set("family", read.family->model_type);
  const Value facts = gpt::facts_of(read.shape);
  for (const char* size : {"num_layers", "hidden_size", "num_attention_heads", "num_query_groups", "kv_channels",
                           "ffn_hidden_size", "vocab_size", "max_position_embeddings", "sliding_window", "num_experts",
                           "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size"})
    if (const Value* const there = facts.find(size); there && !there->is_null()) options.set(size, *there);
  for (const char* size : {"hidden_size", "kv_channels"})  // so that a quarter of a head is even
    options.set(size, 4 * options.find(size)->as_int());
  const Host host;
  const Value written = make_plugin_from<Model>(host, "gpt", options)->weight_rules("hf").config;
  const gpt::FolderConfig again = gpt::parse_config(written, "written");
  EXPECT_EQ(gpt::write_config(*read.family, again.shape, Value()).to_json(), written.to_json());
  const Value of_family = gpt::family_options(*read.family, read.shape.hidden), now = gpt::facts_of(again.shape);
  for (const char* option : {"rotary_base", "rotary_local_base", "rotary_percent"})
    if (const Value* const wanted = of_family.find(option); wanted && again.shape.rotary) {
      EXPECT_EQ(*now.find(option), *wanted) << option;
    }
}

INSTANTIATE_TEST_SUITE_P(All, GptFamily, ::testing::ValuesIn(kNames), [](const auto& info) { return info.param; });

TEST(GptFamilies, of_the_table_all_have_a_model_here) {
  std::set<std::string> tried;
  for (const char* name : kNames)
    tried.insert(read_json_file(kGoldenFamilies + name + "/config.json").find("model_type")->as_string());
  for (const gpt::FamilyPtr& family : gpt::known_families())
    EXPECT_TRUE(tried.contains(family->model_type)) << family->title;
}

// A Qwen3 whose tensors and keys have other names, described in the config.
constexpr const char* kMine = R"({"model_type": "mine", "title": "Mine", "architecture": "MineForCausalLM",
  "like": "llama", "options": {"qk_norm": "head"}, "prefix": "net.",
  "keys": {"num_hidden_layers": null, "depth": "num_layers", "window": {"only": [0], "why": "it has none"}},
  "tensors": {"embedding.word": "net.words", "block.{}.attn.q_norm": "model.layers.{}.self_attn.q_norm",
              "block.{}.attn.k_norm": "model.layers.{}.self_attn.k_norm"}})";

Value mine() {
  Value config = whole_config("qwen3");
  config.set("model_type", "mine");
  config.set("depth", *config.find("num_hidden_layers"));
  for (const char* key : {"num_hidden_layers", "use_sliding_window", "sliding_window", "max_window_layers"})
    config.erase(key);
  return config;
}

TEST(GptFamilies, a_user_describes_one_in_json) {
  const gpt::FamilyPtr family = gpt::read_family(parse_json(kMine, "test"));
  const gpt::FolderConfig read = gpt::parse_config(mine(), "F/config.json", family);
  EXPECT_EQ(gpt::facts_of(read.shape), gpt::facts_of(gpt::parse_config(whole_config("qwen3"), "Q").shape));
  const WeightRules rules = gpt::weight_rules(*family, read.shape);
  EXPECT_EQ(rules.rules[0].parts[0].name, "words.weight");
  EXPECT_TRUE(rules.rules[0].parts[0].prefixed);
  EXPECT_EQ(rules.rules[1].parts[0].name, "model.layers.0.input_layernorm.weight");
  EXPECT_FALSE(rules.rules[1].parts[0].prefixed);
  const Value written = gpt::write_config(*family, read.shape, Value());
  EXPECT_EQ(written.find("depth")->as_int(), 2);
  EXPECT_EQ(written.find("model_type")->as_string(), "mine");
  Value other = mine();
  other.set("window", 5);
  EXPECT_NE(
      error_of([&] { gpt::parse_config(other, "F", family); }).find("\"window\": 5 is not supported: it has none"),
      std::string::npos);
}

TEST(GptFamilies, a_description_that_is_wrong_is_refused_with_its_place) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"model_type": "a", "like": "lama"})", "a family is like \"lama\"; known are gpt2, llama"},
      {R"({"model_type": "a", "keys": {"k": {"sets": "num_layer"}}})",
       "sets num_layer, which is no option of model/gpt"},
      {R"({"model_type": "a", "keys": {"k": {"set": "num_layers"}}})", "\"k\" has \"set\", which is not known"},
      {R"({"model_type": "a", "keys": {"k": {}}})", "needs one of sets, only, no_effect and reads"},
      {R"({"model_type": "a", "tensors": {"final_norm": {"rows": "by head", "tensor": "t"}}})",
       "\"by group\" is known"},
      {R"({"model_type": "a", "windows": {}})", "has \"windows\", which is not known"},
      {R"("qwen4")", "family is \"qwen4\"; known are gpt2, llama"},
      {R"(7)", "a name, or an object with \"model_type\" was wanted"}};
  for (const auto& [json, wanted] : cases) {
    const std::string refusal = error_of([&, json = json] { gpt::read_family(parse_json(json, "test")); });
    EXPECT_NE(refusal.find(wanted), std::string::npos) << refusal;
  }
}

TEST(GptFamilies, options_beside_a_family_that_it_cannot_say_are_refused) {
  const std::string sizes = R"("num_layers": 1, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 300,
    "ffn_hidden_size": 64, "max_position_embeddings": 32)";
  EXPECT_EQ(error_of([&] { gpt("{\"family\": \"qwen3\", " + sizes + "}"); }), "");
  const std::string refusal =
      error_of([&] { gpt("{\"family\": \"qwen3\", \"norm_placement\": \"both\", " + sizes + "}"); });
  EXPECT_NE(refusal.find("family Qwen3 cannot say norm_placement \"both\""), std::string::npos) << refusal;
}

TEST(GptFamilies, an_unknown_one_is_refused_with_the_tensors_that_stand_in_the_way) {
  Value config = whole_config("llama");
  config.set("model_type", "new");
  const auto refusal = [&](const std::vector<std::string>& tensors) {
    return error_of([&] { gpt::parse_config(config, "F/config.json", nullptr, tensors); });
  };
  const std::string strange = refusal({"model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.sinks",
                                       "model.layers.1.self_attn.sinks", "model.embed_tokens.weight"});
  EXPECT_NE(strange.find("model_type is \"new\""), std::string::npos) << strange;
  EXPECT_NE(strange.find("has no model.layers.{}.self_attn.sinks\n"), std::string::npos) << strange;
  const std::string alike = refusal({"model.layers.0.self_attn.q_proj.weight", "model.norm.weight"});
  EXPECT_NE(alike.find("set \"family\": \"llama\""), std::string::npos) << alike;
}

}  // namespace
}  // namespace drivetrain::test
