// Vocabulary and merges as GPT-2 has them: which special tokens the files beside them name, and which other families
// with such files are refused.
#include "test_files.h"

namespace drivetrain::test {
namespace {

using Gpt2Files = BpeFiles;

constexpr const char* kPlain = R"("lstrip": false, "normalized": true, "rstrip": false, "single_word": false)";

std::string token(const std::string& key, const std::string& content) {
  return "\"" + key + "\": {\"__type\": \"AddedToken\", \"content\": \"" + content + "\", " + kPlain + "}";
}

// The files of facebook/opt-125m: GPT-2's class, other names.
TEST_F(Gpt2Files, tokens_that_the_config_names_are_found_in_texts) {
  write_pair({"</s>", "<pad>", "<s>"}, true);
  write("tokenizer_config.json", "{" + token("bos_token", "</s>") + ", " + token("eos_token", "</s>") + ", " +
                                     token("unk_token", "</s>") + ", " + token("pad_token", "<pad>") +
                                     R"(, "add_bos_token": true, "tokenizer_class": "GPT2Tokenizer"})");
  const auto tokenizer = open();
  const TokenizerFacts facts = tokenizer->facts();
  EXPECT_EQ(facts.bos, 520);
  EXPECT_EQ(facts.eos, 520);
  EXPECT_EQ(facts.pad, 521);
  EXPECT_EQ(facts.eod, 520) << "<|endoftext|> is in the vocabulary, and nothing makes it special";
  EXPECT_EQ(facts.prefix, Ids{520});
  Ids wanted = ids_of(*tokenizer, "user: hi");
  wanted.push_back(520);
  const Ids behind = ids_of(*tokenizer, "\n");
  wanted.insert(wanted.end(), behind.begin(), behind.end());
  EXPECT_EQ(ids_of(*tokenizer, "user: hi</s>\n"), wanted);
  EXPECT_EQ(ids_of(*tokenizer, "<pad></s>"), (Ids{521, 520}));
  EXPECT_FALSE(has(ids_of(*tokenizer, "<s>"), 522)) << "no file names it";
  EXPECT_FALSE(has(ids_of(*tokenizer, "<|endoftext|>"), 0)) << "the config names others in its place";
}

TEST_F(Gpt2Files, special_tokens_map_counts_where_the_config_is_silent) {
  write_pair({"</s>", "<pad>", "<tool>"}, true);
  write("special_tokens_map.json",
        R"({"eos_token": "</s>", "pad_token": "<pad>", "additional_special_tokens": ["<tool>"]})");
  const auto check = [&](std::optional<int32_t> pad) {
    const auto tokenizer = open();
    EXPECT_EQ(tokenizer->facts().eos, 520);
    EXPECT_EQ(tokenizer->facts().pad, pad);
    EXPECT_EQ(ids_of(*tokenizer, "</s><tool><|endoftext|>"), (Ids{520, 522, 0}));
    EXPECT_EQ(has(ids_of(*tokenizer, "<pad>"), 521), pad.has_value());
  };
  check(521);
  write("tokenizer_config.json", R"({"model_max_length": 512, "tokenizer_class": "GPT2Tokenizer"})");
  check(521);
  EXPECT_EQ(open()->facts().files.size(), 4u);
  write("tokenizer_config.json", R"({"pad_token": null, "tokenizer_class": "GPT2TokenizerFast"})");
  check(std::nullopt);
}

// What transformers takes for these classes where no file names tokens; its <mask> takes the blank before it.
TEST_F(Gpt2Files, roberta_and_bart_have_names_of_their_own) {
  write_pair({"<s>", "<pad>", "</s>", "<unk>", "<mask>"});
  for (const char* name : {"RobertaTokenizer", "BartTokenizerFast"}) {
    write("tokenizer_config.json", concat(R"({"tokenizer_class": ")", name, R"("})"));
    const auto tokenizer = open();
    const TokenizerFacts facts = tokenizer->facts();
    EXPECT_EQ(facts.bos, 520);
    EXPECT_EQ(facts.eos, 522);
    EXPECT_EQ(facts.pad, 521);
    EXPECT_EQ(facts.eod, 522);
    EXPECT_EQ(facts.prefix, Ids{520}) << "cls is in front of every text";
    EXPECT_EQ(ids_of(*tokenizer, "<s> <mask></s><pad><unk>"), (Ids{520, 524, 522, 521, 523}));
    EXPECT_EQ(facts.lossless, Lossless::no);
  }
}

TEST_F(Gpt2Files, added_tokens_have_their_ids_in_files_beside_the_vocabulary) {
  write_pair({}, true);
  write("added_tokens.json", R"({"<pad>": 530, "<tool>": 531})");
  write("tokenizer_config.json", R"({"pad_token": "<pad>"})");
  EXPECT_EQ(open()->facts().pad, 530);
  EXPECT_EQ(ids_of(*open(), "<tool><pad><|endoftext|>"), (Ids{531, 530, 0}));
  std::filesystem::remove(folder_ / "added_tokens.json");
  expect_refused({"tokenizer_config.json", "pad_token", "<pad>"});
  write("tokenizer_config.json", R"({"pad_token": "<pad>", "added_tokens_decoder": {"530": {"content": "<pad>", )" +
                                     std::string(kPlain) + R"(, "special": true}, "531": {"content": "<tool>", )" +
                                     R"("lstrip": true}}})");
  EXPECT_EQ(ids_of(*open(), "<pad>  <tool>"), (Ids{530, 531}));
  write("added_tokens.json", R"({"<pad>": 530, "<tool>": 540})");
  expect_refused({"added_tokens.json", "<tool>", "540", "531"});
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"5x": {"content": "<pad>"}}})");
  expect_refused({"tokenizer_config.json", "added_tokens_decoder", "5x"});
}

TEST_F(Gpt2Files, a_blank_in_front_is_put_where_the_config_asks_for_it) {
  write_pair({}, true);
  const Ids with_blank = ids_of(*open(), " the license");
  EXPECT_NE(ids_of(*open(), "the license"), with_blank);
  write("tokenizer_config.json", R"({"add_prefix_space": true})");
  EXPECT_EQ(ids_of(*open(), "the license"), with_blank);
  EXPECT_EQ(open()->facts().lossless, Lossless::no);
}

// The ids that Hugging Face's tokenizers 0.23.3 gives for a BPE of these files, with ByteLevel and these two added.
TEST_F(Gpt2Files, ids_are_those_of_the_library) {
  write_pair({"</s>", "<mask>"}, true);
  const auto write_config = [&](const char* blank) {
    write("tokenizer_config.json",
          "{" + token("eos_token", "</s>") +
              R"(, "mask_token": {"content": "<mask>", "lstrip": true}, "add_prefix_space": )" + blank + "}");
  };
  write_config("false");
  EXPECT_EQ(ids_of(*open(), "user: hi</s>\n"), (Ids{85, 277, 82, 26, 221, 72, 73, 520, 199}));
  EXPECT_EQ(ids_of(*open(), "a <mask></s> b</s></s>"), (Ids{65, 521, 520, 221, 66, 520, 520}));
  EXPECT_EQ(ids_of(*open(), "the license</s>the"), (Ids{290, 221, 76, 73, 67, 69, 78, 277, 520, 290}));
  write_config("true");
  EXPECT_EQ(ids_of(*open(), "user: hi</s>\n"), (Ids{221, 85, 277, 82, 26, 221, 72, 73, 520, 221, 199}));
  EXPECT_EQ(ids_of(*open(), "a <mask></s> b</s></s>"), (Ids{221, 65, 521, 520, 221, 66, 520, 520}));
  EXPECT_EQ(ids_of(*open(), "the license</s>the"), (Ids{221, 290, 221, 76, 73, 67, 69, 78, 277, 520, 221, 290}));
}

TEST_F(Gpt2Files, other_families_are_refused) {
  write_pair({}, true);
  for (const char* name : {"CLIPTokenizer", "Qwen2Tokenizer", "PreTrainedTokenizerFast"}) {
    write("tokenizer_config.json", concat(R"({"tokenizer_class": ")", name, R"("})"));
    expect_refused({"tokenizer_config.json", name, "GPT2", "tokenizer.json"});
  }
  std::filesystem::remove(folder_ / "tokenizer_config.json");
  write_pair({"a</w>"}, true);
  expect_refused({"vocab.json", "a</w>", "CLIP"});
  write_pair({"</w>"}, true);
  EXPECT_EQ(open()->facts().vocab_size, 521) << "a whole token of that name ends no word";
}

}  // namespace
}  // namespace drivetrain::test
