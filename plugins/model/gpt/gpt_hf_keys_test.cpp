// The table of keys of config.json is what the reader does: every key is changed once, every pair of spellings is made
// to differ once, and README.md shows the table.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "hf_keys.h"
#include "support/key_table_rows.h"
#include "test_hf_configs.h"
#include "test_model.h"

namespace drivetrain::test {
namespace {

using gpt::Family;
using gpt::FamilyKey;

Value parsed(const std::string& json) { return parse_json(json, "test"); }

void put(Value& config, const std::string& json) {
  const Value more = parsed(json);
  for (const Value::Member& member : more.members()) config.set(member.key, member.value);
}

// All that a file decides.
std::string model_of(const Value& config) {
  const gpt::FolderConfig f = gpt::parse_config(config, "F/config.json");
  return concat(gpt::write_config(*f.family, f.shape, Value()).to_json(), f.dtype);
}

// Another value than the one that is there, or with others that it needs in order to count.
Value changed(const Value& config, const Family& family, const std::string& key) {
  const std::map<std::string, const char*> special = {
      {"rope_parameters", R"({"rope_parameters": {"rope_theta": 7e5}, "rope_theta": null})"},
      {"rope_scaling", R"({"rope_parameters": null, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
         "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}})"},
      {"rope_theta", R"({"rope_parameters": null, "rope_theta": 7e5})"},
      {"partial_rotary_factor", R"({"partial_rotary_factor": 0.5})"},
      {"pruned_heads", R"({"pruned_heads": {"0": [1]}})"},
      {"layer_types", R"({"layer_types": ["chunked_attention"]})"},
      {"no_rope_layers", R"({"no_rope_layers": [0, 1]})"},
      {"no_rope_layer_interval", R"({"no_rope_layers": null, "no_rope_layer_interval": 1})"},
      {"sliding_window_pattern", R"({"layer_types": null, "sliding_window_pattern": 1})"},
      {"is_encoder_decoder", R"({"is_encoder_decoder": true})"},
      {"add_cross_attention", R"({"add_cross_attention": true})"},
      {"quantization_config", R"({"quantization_config": {"bits": 4}})"},
      {"head_dim", R"({"head_dim": 20})"},
      {"sliding_window",
       R"({"sliding_window": 16, "use_sliding_window": true, "max_window_layers": 1, "layer_types": null})"},
      {"use_sliding_window",
       R"({"use_sliding_window": true, "max_window_layers": 1, "sliding_window": 16, "layer_types": null})"},
      {"max_window_layers",
       R"({"max_window_layers": 1, "use_sliding_window": true, "sliding_window": 16, "layer_types": null})"},
      {"model_type", R"({"model_type": "bloom"})"},
      {"dtype", R"({"dtype": "float16", "torch_dtype": null})"},
      {"torch_dtype", R"({"torch_dtype": "float16", "dtype": null})"}};
  Value other = config;
  // layer_types says it, or all layers slide.
  if ((family.model_type == "smollm3" || family.model_type == "qwen3_moe") && key == "max_window_layers") {
    other.set(key, 1);
    return other;
  }
  if (family.experts && !family.window && key == "use_sliding_window") {  // refused
    other.set(key, true);
    return other;
  }
  if (const auto found = special.find(key); found != special.end()) {
    put(other, found->second);
    if (!family.window || !family.window->has_switch)
      for (const char* one : {"use_sliding_window", "max_window_layers"}) other.erase(one);
    return other;
  }
  // Other spellings would contradict it.
  for (const FamilyKey& row : family.keys)
    if (const auto names = spellings(row.names);
        row.use == KeyUse::honoured && row.reads.empty() && std::find(names.begin(), names.end(), key) != names.end())
      for (const std::string& name : names)
        if (name != key) other.set(name, Value());
  const Value* const there = config.find(key);
  if (!there || there->is_null())
    other.set(key, 7);
  else if (there->is_bool())
    other.set(key, !there->as_bool());
  else if (there->is_int())
    other.set(key, 2 * there->as_int());
  else if (there->is_number())
    other.set(key, there->as_double() == 0 ? 0.5 : there->as_double() / 2);
  else
    other.set(key, "other");
  return other;
}

template <class Check>
void each_row(const Check& check) {
  for (const gpt::FamilyPtr& family : gpt::known_families())
    for (const FamilyKey& row : family->keys) check(*family, whole_config(family->model_type), row);
}

TEST(GptHfKeys, a_changed_key_changes_the_model_or_is_refused_and_others_change_nothing) {
  each_row([](const Family& family, const Value& config, const FamilyKey& row) {
    for (const std::string& key : spellings(row.names)) {
      SCOPED_TRACE(concat(family.model_type, ": ", key));
      const Value other = changed(config, family, key);
      std::string now;
      const std::string refusal = error_of([&] { now = model_of(other); });
      if (row.use == KeyUse::no_effect) {
        EXPECT_EQ(refusal, "");
        EXPECT_EQ(now, model_of(config));
      } else if (row.use == KeyUse::refused) {
        EXPECT_NE(refusal.find(key), std::string::npos) << refusal;
      } else {
        EXPECT_TRUE(!refusal.empty() || now != model_of(config)) << "nothing changed";
      }
    }
  });
}

TEST(GptHfKeys, two_spellings_are_equal_or_refused) {
  size_t pairs = 0;
  each_row([&](const Family& family, const Value& config, const FamilyKey& row) {
    const std::vector<std::string> names = spellings(row.names);
    if (row.use != KeyUse::honoured || names.size() < 2 || !(row.reads.empty() || row.reads == "dtype")) return;
    const Value* said = nullptr;
    for (const std::string& name : names)
      if (const Value* found = config.find(name); found && !found->is_null()) said = found;
    ASSERT_NE(said, nullptr) << names.front();
    const Value plain = *said;
    for (const std::string& first : names)
      for (const std::string& second : names) {
        if (first == second) continue;
        SCOPED_TRACE(concat(family.model_type, ": ", first, " and ", second));
        Value both = config;
        for (const std::string& name : names) both.set(name, Value());
        both.set(first, plain);
        const std::string alone = model_of(both);
        both.set(second, plain);
        EXPECT_EQ(model_of(both), alone);
        both.set(second, plain.is_string() ? Value("float64") : Value(plain.as_int() + 1));
        const std::string refusal = error_of([&] { model_of(both); });
        for (const std::string& part : {first, second, std::string("two spellings of one fact")})
          EXPECT_NE(refusal.find(part), std::string::npos) << refusal;
        ++pairs;
      }
  });
  EXPECT_EQ(pairs, 3 * 2 + 6 + 4 * 2 + 2 * gpt::known_families().size());
}

TEST(GptHfKeys, both_spellings_of_rope_may_be_there_if_they_agree) {
  const std::string llama3 = R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64)";
  const auto with = [](const std::string& rope) {
    Value config = whole_config("llama");
    for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"})
      config.erase(key);
    put(config, "{" + rope + "}");
    return config;
  };
  const std::string fresh = R"("rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, )" + llama3 + "}";
  const std::string wanted = model_of(with(fresh));
  for (const std::string& old : {
           R"("rope_theta": 500000, "rope_scaling": {"rope_type": "llama3", )" + llama3 + "}",
           R"("rope_theta": 5e5, "rope_scaling": {"type": "llama3", "rope_type": "llama3", )" + llama3 + "}",
           R"("rope_scaling": {"type": "llama3", "rope_theta": 5e5, )" + llama3 + "}",
       }) {
    EXPECT_EQ(model_of(with(old)), wanted) << old;
    EXPECT_EQ(model_of(with(fresh + ", " + old)), wanted) << old;
  }
  for (const std::string& other : {
           std::string(R"("rope_theta": 10000)"),
           std::string(R"("rope_scaling": {"rope_type": "default"})"),
           R"("rope_scaling": {"type": "default", "rope_type": "llama3", )" + llama3 + "}",
           R"("rope_scaling": {"rope_type": "llama3", "rope_theta": 1e4, )" + llama3 + "}",
           std::string(R"("rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 64})"),
       }) {
    const std::string refusal = error_of([&] { model_of(with(fresh + ", " + other)); });
    EXPECT_NE(refusal.find("differ"), std::string::npos) << other << "\n" << refusal;
  }
  for (const char* unknown : {R"("rope_parameters": {"rope_type": "llama3", "attention_factor": 2.0, )",
                              R"("rope_parameters": {"rope_type": "default", "beta_fast": 32, )"}) {
    const std::string refusal = error_of([&] { model_of(with(unknown + llama3 + "}")); });
    EXPECT_NE(refusal.find("is not known for rope_type"), std::string::npos) << refusal;
  }
}

TEST(GptHfKeys, what_nobody_knows_is_named_with_the_key_that_may_be_meant) {
  const auto unknown = [](const std::string& family, const std::string& key) {
    Value config = whole_config(family);
    config.set(key, 1);
    config.erase("rms_norm_eps");
    return gpt::parse_config(config, "F").unknown;
  };
  for (const gpt::FamilyPtr& family : gpt::known_families()) {
    const auto list = gpt::parse_config(whole_config(family->model_type), "F").unknown;
    EXPECT_TRUE(list.empty()) << family->model_type << ": " << (list.empty() ? "" : list[0].first);
  }
  const auto misspelt = unknown("llama", "rms_norm_epss");
  ASSERT_EQ(misspelt.size(), 1u);
  EXPECT_EQ(misspelt[0].first, "rms_norm_epss");
  EXPECT_EQ(misspelt[0].second, "it is no key of llama; is \"rms_norm_eps\" meant?");
  EXPECT_EQ(unknown("qwen2", "logit_softcap")[0].second, "it is no key of qwen2");
  EXPECT_EQ(unknown("gpt2", "rotary_pct").size(), 1u);
  EXPECT_TRUE(unknown("mistral", "_name_or_path").empty());
}

TEST(GptHfKeys, an_unknown_dtype_is_refused_by_name) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    Value config = whole_config("qwen2");
    config.erase("torch_dtype");
    config.set(key, "float30");
    const std::string refusal = error_of([&] { gpt::parse_config(config, "F/config.json"); });
    for (const char* part : {"F/config.json", key, "float30", "bfloat16"})
      EXPECT_NE(refusal.find(part), std::string::npos) << refusal;
    config.set(key, "torch.float16");
    EXPECT_EQ(gpt::parse_config(config, "F").dtype, "float16");
  }
}

// transformers fills in what a file does not say by the class of the family.
TEST(GptHfKeys, absent_keys_mean_what_the_family_s_class_says) {
  const auto groups = [](const std::string& family, const char* more) {
    Value config = whole_config(family);
    config.set("num_attention_heads", 32), config.set("head_dim", 4);
    config.erase("num_key_value_heads");
    put(config, more);
    return gpt::parse_config(config, "F").shape.groups;
  };
  const char* const null = R"({"num_key_value_heads": null})";
  EXPECT_EQ(groups("llama", "{}"), 32);
  EXPECT_EQ(groups("mistral", "{}"), 8);
  EXPECT_EQ(groups("mistral", null), 32);
  EXPECT_EQ(groups("qwen2", "{}"), 32);
  EXPECT_EQ(groups("qwen2", null), 32);
}

TEST(GptHfKeys, a_mistral_without_a_window_is_a_llama) {
  const auto mistral_of = [](const char* more) {
    Value config = whole_config("mistral");
    config.erase("sliding_window");
    put(config, more);
    return gpt::parse_config(config, "F/config.json");
  };
  const auto mistral = mistral_of(R"({"sliding_window": null})");
  Value named = mistral.config;
  named.set("model_type", "llama");
  EXPECT_EQ(gpt::facts_of(mistral.shape), gpt::facts_of(gpt::parse_config(named, "F").shape));
  for (const char* cuts_nothing : {R"({"sliding_window": 128})", "{}"})
    EXPECT_EQ(mistral_of(cuts_nothing).shape.window_of(1), 0) << "no position is beyond it";
  EXPECT_EQ(mistral_of(R"({"sliding_window": 127})").shape.window_of(1), 127);
  EXPECT_EQ(mistral_of(R"({"max_position_embeddings": 8192})").shape.window_of(0), 4096) << "absent";
  const Value written = gpt::write_config(*mistral.family, mistral.shape, mistral.config);
  EXPECT_EQ(written.find("model_type")->as_string(), "mistral");
  EXPECT_EQ(written.find("architectures")->items().front().as_string(), "MistralForCausalLM");
  EXPECT_TRUE(written.find("sliding_window")->is_null());
}

TEST(GptHfKeys, windows_stay_in_what_is_written) {
  Value config = whole_config("qwen2");
  put(config, R"({"use_sliding_window": true, "sliding_window": 100, "max_window_layers": 1,
    "layer_types": ["full_attention", "sliding_attention"]})");
  const auto read = gpt::parse_config(config, "F");
  EXPECT_EQ(read.shape.window_of(0), 0);
  EXPECT_EQ(read.shape.window_of(1), 100);
  const Value written = gpt::write_config(*read.family, read.shape, read.config),
              fresh = gpt::write_config(*read.family, read.shape, Value());
  for (const char* key : {"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"}) {
    EXPECT_EQ(*written.find(key), *config.find(key)) << key;
    EXPECT_EQ(*fresh.find(key), *config.find(key)) << key;
  }
}

TEST(GptHfKeys, the_readme_shows_the_table) {
  std::vector<std::string> rows;
  for (const KeyRow& row : gpt::key_rows()) rows.push_back(readme_row(row));
  EXPECT_EQ(rows_missing_in(DRIVETRAIN_SOURCE_DIR "/plugins/model/gpt/README.md", rows), "");
}

}  // namespace
}  // namespace drivetrain::test
