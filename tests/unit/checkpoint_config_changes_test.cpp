// What a changed key means for a run that goes on.
#include <gtest/gtest.h>

#include "train/config_changes.h"

namespace drivetrain::test {
namespace {

std::vector<ConfigChange> changes(const std::string& before, const std::string& now) {
  return config_changes(parse_json(before, "before"), parse_json(now, "now"));
}

TEST(ConfigChanges, equal_configs_have_none_whatever_the_order_and_the_facts) {
  EXPECT_TRUE(
      changes(R"({"a": {"b": 1, "c": [1, 2]}, "d": null})", R"({"d": null, "a": {"c": [1, 2], "b": 1}})").empty());
  EXPECT_TRUE(changes(R"({"a": 1, "_resolved": {"host": "x"}})", R"({"a": 1, "_resolved": {"host": "y"}})").empty());
}

TEST(ConfigChanges, every_changed_key_is_named_with_both_values) {
  const auto list = changes(R"({"optimizer": {"type": "adamw", "params": {"lr": 0.001, "eps": 1e-8}}})",
                            R"({"optimizer": {"type": "adamw", "params": {"lr": 0.002, "betas": [0.9, 0.95]}}})");
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list[0].path, "optimizer.params.lr");
  EXPECT_EQ(list[0].before, "0.001");
  EXPECT_EQ(list[0].now, "0.002");
  EXPECT_EQ(list[1].now, "absent");
  EXPECT_EQ(list[2].before, "absent");
}

TEST(ConfigChanges, a_section_says_what_its_changes_do_to_the_numbers) {
  const auto effect = [](const std::string& key) {
    const auto list = changes("{\"" + key + "\": {\"type\": \"a\"}}", "{\"" + key + "\": {\"type\": \"b\"}}");
    return list.size() == 1 ? list[0].effect : ChangeEffect{-1};
  };
  for (const char* key : {"output_dir", "steps_per_print", "monitors", "checkpoint_store", "checkpoint_policy",
                          "activation_checkpointing", "long_context"})
    EXPECT_EQ(effect(key), ChangeEffect::none) << key;
  for (const char* key :
       {"data_parallel", "tensor_parallel", "pipeline", "attention", "communicator", "train_micro_batch_size_per_gpu"})
    EXPECT_EQ(effect(key), ChangeEffect::rounding) << key;
  for (const char* key : {"optimizer", "scheduler", "dataset", "model", "precision", "train_batch_size", "seed",
                          "gradient_clipping", "train_steps"})
    EXPECT_EQ(effect(key), ChangeEffect::numbers) << key;
}

// {path: effect}, in the order of the config.
std::vector<std::pair<std::string, ChangeEffect>> effects(const std::string& before, const std::string& now,
                                                          const std::vector<DeclaredEffects>& declared) {
  std::vector<std::pair<std::string, ChangeEffect>> list;
  for (const ConfigChange& change : config_changes(parse_json(before, "before"), parse_json(now, "now"), declared))
    list.emplace_back(change.path, change.effect);
  return list;
}

TEST(ConfigChanges, a_plugin_says_what_its_options_do_to_the_numbers_and_another_of_that_name_does_not) {
  using List = std::vector<std::pair<std::string, ChangeEffect>>;
  const std::vector<DeclaredEffects> declared{{"strategy", "mine", true, {"cheap"}},
                                              {"optimizer", "mine", false, {"lists"}}};
  const std::string config = R"({"strategy": [{"type": "theirs", "params": {"cheap": 1}},
                                {"type": "mine", "params": {"cheap": 1, "chunk": {"rows": 1}}}],
                 "optimizer": {"type": "mine", "params": {"lists": 1, "cheap": 1}}, "model": {"type": "mine", "params": {"cheap": 1}}})";
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = config;
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
    return effects(config, text, declared);
  };
  EXPECT_TRUE(changed("1", "1").empty());
  EXPECT_EQ(changed("\"cheap\": 1", "\"cheap\": 2"), (List{{"strategy/theirs.params.cheap", ChangeEffect::numbers},
                                                           {"strategy/mine.params.cheap", ChangeEffect::none},
                                                           {"optimizer.params.cheap", ChangeEffect::numbers},
                                                           {"model.params.cheap", ChangeEffect::numbers}}));
  EXPECT_EQ(changed("\"lists\": 1", "\"lists\": 2"), (List{{"optimizer.params.lists", ChangeEffect::none}}));
  EXPECT_EQ(changed("{\"rows\": 1}", "{\"rows\": 2}"),
            (List{{"strategy/mine.params.chunk.rows", ChangeEffect::rounding}}));
  // Switched off, as resolved.json writes it; of another plugin the numbers change.
  EXPECT_EQ(
      changed(R"({"type": "mine", "params": {"cheap": 1, "chunk": {"rows": 1}}})",
              R"({"type": "mine", "enabled": false})"),
      (List{{"strategy/mine.params", ChangeEffect::rounding}, {"strategy/mine.enabled", ChangeEffect::rounding}}));
  EXPECT_EQ(changed(R"({"type": "theirs", "params": {"cheap": 1}},)", ""), (List{{"strategy", ChangeEffect::numbers}}));
  EXPECT_EQ(changed(R"("optimizer": {"type": "mine")", R"("optimizer": {"type": "theirs")").at(0).second,
            ChangeEffect::numbers);
}

TEST(ConfigChanges, of_another_program_s_settings_those_that_ours_has_too_are_compared) {
  const Value theirs = parse_json(R"({"train_batch_size": 4, "gradient_clipping": 1.0, "steps_per_print": 9,
      "seed": "auto", "zero_optimization": {"stage": 2}, "wall_clock_breakdown": true,
      "optimizer": {"type": "Adam", "params": {"lr": 1e-2, "betas": [0.9, 0.95], "torch_adam": true, "eps": null}}})",
                                  "theirs");
  const Value ours = parse_json(R"({"train_batch_size": 4.0, "gradient_clipping": 1, "steps_per_print": 1, "seed": 1,
      "optimizer": {"type": "adamw", "params": {"lr": 1e-3, "betas": [0.9, 0.99],
      "eps": 1e-8}}})",
                                "ours");
  const auto list = common_changes(theirs, ours);
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].path, "optimizer.params.lr");
  EXPECT_EQ(list[0].before, "0.01");
  EXPECT_EQ(list[0].now, "0.001");
  EXPECT_EQ(list[1].path, "optimizer.params.betas");
  EXPECT_TRUE(common_changes(ours, ours).empty());
}

std::vector<ConfigChange> of_data(const std::string& before, const std::string& now) {
  return data_changes(parse_json(before, "before"), parse_json(now, "now"));
}

TEST(DataChanges, times_beside_the_same_digest_do_not_count_wherever_they_stand) {
  const auto list = of_data(R"({"source": {"files": {"a": {"bin_mtime_ns": 1, "idx_mtime_ns": 1, "digest": "x"},
                                                     "b": {"bin_mtime_ns": 2, "digest": "y"}}}})",
                            R"({"source": {"files": {"a": {"bin_mtime_ns": 5, "idx_mtime_ns": 6, "digest": "x"},
                                                     "b": {"bin_mtime_ns": 7, "digest": "y"}}}})");
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].effect, ChangeEffect::none);
  EXPECT_TRUE(of_data(R"({"a_mtime_ns": 1, "digest": "x"})", R"({"a_mtime_ns": 1, "digest": "x"})").empty());
}

TEST(DataChanges, times_count_where_no_digest_or_another_one_stands_beside_them) {
  for (const auto& [before, now] :
       {std::pair(R"({"a_mtime_ns": 1})", R"({"a_mtime_ns": 2})"),
        std::pair(R"({"f": {"digest": "x"}, "a_mtime_ns": 1})", R"({"f": {"digest": "x"}, "a_mtime_ns": 2})")}) {
    const auto list = of_data(before, now);
    ASSERT_EQ(list.size(), 1U) << before;
    EXPECT_EQ(list[0].path, "the data's a_mtime_ns");
    EXPECT_EQ(list[0].effect, ChangeEffect::numbers);
  }
  EXPECT_EQ(of_data(R"({"a_mtime_ns": 1, "digest": "x"})", R"({"a_mtime_ns": 2, "digest": "y"})").size(), 2U);
  EXPECT_EQ(of_data(R"({"bytes": 1, "digest": "x"})", R"({"bytes": 2, "digest": "x"})")[0].effect,
            ChangeEffect::numbers);
}

}  // namespace
}  // namespace drivetrain::test
