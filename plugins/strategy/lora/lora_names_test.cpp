// strategy/lora: which layers the options choose, what is refused, and names and files as PEFT has them.
#include <filesystem>
#include <fstream>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "peft_folder.h"
#include "support/write_safetensors.h"
#include "test_lora.h"

namespace drivetrain {
namespace {

using namespace drivetrain::lora_test;

TEST(Lora, the_base_is_frozen_but_for_modules_to_save) {
  Made made(R"({"modules_to_save": ["lm_head"], "r": 2})");
  EmbeddingSpec embedding;
  embedding.name = "embedding.word", embedding.count = 11, embedding.dim = kIn;
  EXPECT_FALSE(made.builder.layers->embedding(embedding)->params()[0]->trainable);
  LmLossSpec head;
  head.name = "head", head.vocab = 11, head.dim = kIn;
  EXPECT_TRUE(made.builder.layers->lm_loss(head)->params()[0]->trainable);
  EXPECT_NE(refusal_of(R"({"modules_to_save": ["q_proj"], "targets": ["v_proj"], "r": 2})")
                .find("trained whole or not at all"),
            std::string::npos);
}

TEST(Lora, targets_that_match_nothing_are_named_with_the_nearest) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"targets": ["q_prog"]})",
       R"(target_modules (targets): no module of the model is named "q_prog"; the nearest names are "q_proj")"},
      {R"({"targets": "q_proj"})", R"(no module of the model matches the regular expression "q_proj")"},
      {R"({"targets": "(["})", R"("([" is no regular expression)"},
      {R"({"modules_to_save": ["lm_haed"]})",
       R"(modules_to_save: no module of the model is named "lm_haed"; the nearest names are "lm_head")"},
      {R"({"rank_pattern": {"o_prj": 2}})", R"(rank_pattern: no module of the model is named "o_prj")"},
      {R"({"use_dora": true})", "DoRA"},
      {R"({"bias": "all"})", "biases of the base"},
      {R"({"init_lora_weights": "pissa"})", "pissa"},
      {R"({"rank_pattern": {"o_proj": 0}})", "a rank of at least 1"},
  };
  for (const auto& [options, said] : cases) {
    const std::string text = refusal_of(options);
    EXPECT_NE(text.find(said), std::string::npos) << options << "\n" << text;
  }
}

TEST(Lora, what_is_no_linear_layer_is_refused_when_the_model_is_built) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"targets": ["embed_tokens", "q_proj"], "r": 2})", R"("embed_tokens" is no linear layer of a block)"},
      {R"({"targets": ["q_proj"], "layers_to_transform": 3, "r": 2})", "there is no layer 3"},
      {R"({"targets": ["q_proj"], "exclude_modules": ["q_proj"], "r": 2})", "no linear layer is left to adapt"}};
  for (const auto& [options, said] : cases) {
    const std::string text = refusal_of(options);
    EXPECT_NE(text.find(said), std::string::npos) << options << "\n" << text;
  }
}

TEST(Lora, says_that_experts_get_no_adapters) {
  Made made(R"({"targets": ["q_proj"], "r": 2})");
  made.linear(fused_spec());
  ModelFacts facts;
  facts.mixture = {8, 2, 3, 1000};
  PlanRecord context(facts, {});
  made.strategy->plan(context);
  ASSERT_EQ(context.costs().size(), 1u);
  EXPECT_EQ(context.costs()[0].text, "routers and experts get no adapters: those of 3 layers stay as they are");
}

TEST(Lora, names_files_as_peft_does) {
  Made made(R"({"r": 2, "lora_alpha": 6, "target_modules": ["v_proj", "q_proj"], "modules_to_save": ["lm_head"],
                "save": "both"})");
  made.linear(fused_spec());
  EXPECT_TRUE(made.strategy->exports_model());
  const std::vector<WeightFolder> folders = made.strategy->weight_folders();
  ASSERT_EQ(folders.size(), 1u);
  EXPECT_EQ(folders[0].name, "adapter");
  EXPECT_EQ(folders[0].rules.prefix, "base_model.model.");
  std::vector<std::string> names;
  for (const WeightRule& rule : folders[0].rules.rules)
    for (const WeightPart& part : rule.parts) names.push_back(part.name);
  EXPECT_EQ(names, (std::vector<std::string>{"model.layers.0.self_attn.q_proj.lora_A.weight",
                                             "model.layers.0.self_attn.q_proj.lora_B.weight",
                                             "model.layers.0.self_attn.v_proj.lora_A.weight",
                                             "model.layers.0.self_attn.v_proj.lora_B.weight", "lm_head.weight"}));
  const Value& config = folders[0].rules.config;
  EXPECT_EQ(config.find("r")->as_int(), 2);
  EXPECT_EQ(config.find("peft_type")->as_string(), "LORA");
  EXPECT_EQ(config.find("target_modules")->to_json(), R"(["v_proj","q_proj"])");
  EXPECT_EQ(config.find("modules_to_save")->to_json(), R"(["lm_head"])");

  EXPECT_FALSE(Made("{}").strategy->exports_model());
  EXPECT_TRUE(Made(R"({"save": "merged"})").strategy->weight_folders().empty());
}

TEST(Lora, an_adapter_without_the_tensor_of_a_module_to_save_is_refused_in_the_plan) {
  const TempFolder folder;
  const std::string place = folder.path("adapter");
  std::filesystem::create_directory(place);
  std::ofstream(place + "/adapter_config.json")
      << R"({"peft_type": "LORA", "r": 2, "target_modules": ["v_proj"], "modules_to_save": ["lm_head"]})";
  const std::string layer = "base_model.model.model.layers.0.self_attn.v_proj.";
  const auto with = [&](const std::vector<SafetensorsItem>& more) {
    std::vector<SafetensorsItem> items = {{layer + "lora_A.weight", at::kFloat, {2, kIn}},
                                          {layer + "lora_B.weight", at::kFloat, {2, 2}}};
    items.insert(items.end(), more.begin(), more.end());
    write_safetensors(place + "/adapter_model.safetensors", items, {}, [&](const std::string& name) {
      for (const SafetensorsItem& item : items)
        if (item.name == name) return at::zeros(item.shape);
      return at::Tensor();
    });
    return refusal_of(concat(R"({"from": ")", place, "\"}"));
  };
  const std::string lacks = with({});
  for (const std::string& part :
       {"from: " + place + "/adapter_model.safetensors",
        std::string("has no tensor base_model.model.lm_head.weight, which modules_to_save asks for"),
        "take its module out of modules_to_save in " + place + "/adapter_config.json"})
    EXPECT_NE(lacks.find(part), std::string::npos) << part << "\nin: " << lacks;
  EXPECT_NE(with({{"base_model.model.lm_head.weight", at::kFloat, {11, kIn}}}).find("nothing is refused"),
            std::string::npos);
}

// What is left out is the file's, what is given has to be the same, what is not here is refused.
TEST(Lora, goes_on_with_an_adapter_by_its_own_config) {
  const TempFolder folder;
  const auto options_of = [&](const std::string& config, const std::string& given = "") {
    std::ofstream(folder / "adapter_config.json") << config;
    return concat(R"({"from": ")", folder.path(""), "\"", given, "}");
  };
  const std::string plain = R"("peft_type": "LORA", "r": 2, "lora_alpha": 6, "target_modules": ["v_proj", "q_proj"])";
  {
    Made made(options_of("{" + plain + "}"));
    const auto layer = made.linear(fused_spec());
    EXPECT_EQ(made.param(*layer, "v_proj.lora_A")->layout.global_shape[0], 2);
    EXPECT_EQ(made.strategy->weight_folders()[0].rules.config.find("lora_alpha")->as_double(), 6);
  }
  Made same(options_of("{" + plain + "}", R"(, "r": 2, "targets": ["q_proj", "v_proj"])"));
  const std::pair<std::string, std::string> cases[] = {
      {options_of("{" + plain + "}", R"(, "r": 4)"), R"(option rank is 4, and the adapter in "from" has r 2)"}};
  for (const auto& [options, said] : cases)
    EXPECT_NE(problem([&] { Made made(options); }).find(said), std::string::npos);
  for (const auto& [more, said] :
       {std::pair<const char*, const char*>{R"("use_dora": true)", "use_dora true is not in this version"},
        {R"("bias": "all")", R"(bias "all" is not in this version)"},
        {R"("init_lora_weights": "olora")", "changed the base weights"},
        {R"("lora_dropout": 2)", "adapter_config.json: lora_dropout: is 2; wanted 0 to 0.999"},
        {R"("lora_dropout": -1)", "adapter_config.json: lora_dropout: is -1; wanted 0 to 0.999"},
        {R"("something_new": 3)", "something_new 3 cannot be honoured"}}) {
    const std::string text = problem([&, more = more] { Made made(options_of("{" + plain + ", " + more + "}")); });
    EXPECT_NE(text.find(said), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace drivetrain
