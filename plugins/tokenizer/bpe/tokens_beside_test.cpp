// What stands beside a tokenizer.json and changes its tokens. The ids are those of transformers 5.23.0 and 4.57.6.
#include "test_files.h"

namespace drivetrain::test {
namespace {

class TokensBeside : public BpeFiles {
 protected:
  TokensBeside() { write_json("qwen2", "version", "\"1.0\""); }
  Ids with_config(const std::string& config, const std::string& text) {
    write("tokenizer_config.json", config);
    return ids_of(*open(), text);
  }
  void refused_config(const std::string& config, const std::vector<std::string>& words) {
    write("tokenizer_config.json", config);
    expect_refused(words);
  }
};

TEST_F(TokensBeside, flags_of_the_config_count_before_those_of_the_file) {
  const std::string tool = R"({"added_tokens_decoder": {"403": {"content": "<tool>", "lstrip": true}}})";
  EXPECT_EQ(with_config("{}", "a <tool> b"), (Ids{64, 220, 403, 220, 65}));
  EXPECT_EQ(with_config(tool, "a <tool> b"), (Ids{64, 403, 220, 65}));
}

TEST_F(TokensBeside, a_token_that_has_a_name_is_found_in_texts) {
  EXPECT_EQ(with_config("{}", "a the b"), (Ids{64, 220, 289, 220, 65}));
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"})
    EXPECT_EQ(with_config(concat("{\"", key, "\": [\"he\"]}"), "a the b"), (Ids{64, 220, 83, 287, 220, 65})) << key;
  refused_config(R"({"mask_token": "[MASK]"})", {"tokenizer_config.json", "mask_token", "[MASK]"});
}

TEST_F(TokensBeside, a_new_token_has_the_next_id_or_is_refused) {
  const auto added = [](int id, const std::string& content) {
    return concat(R"({"added_tokens_decoder": {")", id, R"(": {"content": ")", content, R"("}}})");
  };
  EXPECT_EQ(with_config(added(411, "<new>"), "a <new> b"), (Ids{64, 220, 411, 220, 65}));
  EXPECT_EQ(open()->facts().vocab_size, 412);
  refused_config(added(900, "<new>"), {"added_tokens_decoder", "<new>", "900", "411"});
  refused_config(added(404, "<tool>"), {"added_tokens_decoder", "<tool>", "404", "403"});
}

TEST_F(TokensBeside, added_tokens_are_read_where_the_config_has_no_list) {
  write("added_tokens.json", R"({"[PAD]": 411})");
  EXPECT_EQ(with_config("{}", "a[PAD]"), (Ids{64, 411}));
  const auto files = open()->facts().files;
  EXPECT_TRUE(std::any_of(files.begin(), files.end(),
                          [](const std::string& file) { return file.ends_with("/added_tokens.json"); }));
  EXPECT_FALSE(has(with_config(R"({"added_tokens_decoder": {}})", "a[PAD]"), 411));
}

TEST_F(TokensBeside, settings_that_would_change_every_text_are_refused_by_name) {
  refused_config(R"({"split_special_tokens": true})", {"tokenizer_config.json", "split_special_tokens"});
  write_json("qwen2", "pre_tokenizer", R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true})");
  EXPECT_EQ(with_config(R"({"add_prefix_space": true})", "the b"), (Ids{220, 289, 220, 65}));
  refused_config(R"({"add_prefix_space": false})", {"tokenizer_config.json", "add_prefix_space", "Make them equal"});
}

TEST_F(TokensBeside, a_whole_text_is_a_token_with_ignore_merges_and_no_word_of_it) {
  Value model = *read_json_file(golden("mistral/tokenizer.json")).find("model");
  Value vocab = *model.find("vocab");
  vocab.set("\u2581zqx", 900);  // which no merges make
  model.set("vocab", vocab);
  model.set("ignore_merges", true);
  write_json("mistral", "model", model.to_json());
  const auto tokenizer = open();
  EXPECT_EQ(ids_of(*tokenizer, "zqx"), Ids{900});
  EXPECT_EQ(ids_of(*tokenizer, "a zqx"), (Ids{628, 339, 125, 116, 316}));
}

}  // namespace
}  // namespace drivetrain::test
