// The parts that the golden models do not reach: the table of texts, and files that are damaged.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include <drivetrain/error.h>
#include <drivetrain/tokenizer.h>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/temp_folder.h>
#include "support/plugin_under_test.h"

#include "encoder.h"

namespace drivetrain::sentencepiece_models {
namespace {

using test::error_of;

TEST(Trie, finds_each_of_its_texts_and_the_longest_at_the_begin_of_another) {
  std::mt19937 draw(3);
  const auto text = [&] {
    std::string made(1 + draw() % 6, ' ');
    for (char& c : made) c = static_cast<char>(draw() % 5 == 0 ? draw() % 256 : 'a' + draw() % 3);
    return made;
  };
  for (const size_t count : {0, 1, 2, 500, 5000}) {
    std::map<std::string, int32_t> texts;
    for (size_t i = 0; i < count; ++i) texts.emplace(text(), static_cast<int32_t>(i));
    const Trie trie(Trie::Texts(texts.begin(), texts.end()));
    EXPECT_EQ(trie.empty(), count == 0);
    for (const auto& [one, value] : texts) {
      const uint32_t node = trie.walk(Trie::kRoot, one);
      ASSERT_NE(node, Trie::kNowhere) << one;
      EXPECT_EQ(trie.value(node), value) << one;
    }
    for (int i = 0; i < 3000; ++i) {
      const std::string other = text() + text();
      std::pair<size_t, int32_t> longest{0, Trie::kNoValue};
      for (size_t length = 1; length <= other.size(); ++length)
        if (const auto found = texts.find(other.substr(0, length)); found != texts.end())
          longest = {length, found->second};
      EXPECT_EQ(trie.longest(other), longest) << other;
      const uint32_t node = trie.walk(Trie::kRoot, other);
      EXPECT_EQ(node != Trie::kNowhere && trie.value(node) != Trie::kNoValue, texts.contains(other)) << other;
    }
  }
}

class ModelFiles : public testing::Test {
 protected:
  static std::string field(char number, const std::string& bytes) {
    return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
  }
  static std::string piece(const std::string& text, char type = 1) {
    return field(1, field(1, text) + std::string{0x18, type});
  }
  std::string refusal(const std::string& model) const {
    std::ofstream(folder_.path("m.model"), std::ios::binary) << model;
    return error_of([&] { Encoder(read_model_file(folder_.path("m.model")), "m.model"); });
  }
  const test::TempFolder folder_;
};

TEST_F(ModelFiles, what_is_damaged_is_named) {
  const std::string unknown = piece("<unk>", 2), good = unknown + piece("a");
  const std::string bytes = field(2, std::string("\x98\x02\x01", 3));  // byte_fallback
  EXPECT_EQ(refusal(good), "");
  const std::pair<std::string, const char*> cases[] = {
      {good.substr(0, good.size() - 1), "ends behind the end of the file"},
      {piece("a"), "no piece for what is unknown"},
      {unknown + piece("<u>", 2), "two pieces for what is unknown"},
      {good + piece("a", 3), "the piece \"a\", id 2, a second time"},
      {good + piece(""), "a piece without a text, id 2"},
      {good + piece(std::string("x\0y", 3)), "with a byte 0 in it"},
      {good + piece("b", 7), "a piece of type 7"},
      {good + piece("<0x41>", 6), "no byte_fallback"},
      {good + piece("<0x4>", 6) + bytes, "no such byte"},
      {good + piece("<0x41>", 6) + bytes, "not all 256 bytes"},
      {good + field(2, std::string{0x18, 5}), "the model type 5"},
      {good + field(1, field(1, "b") + std::string("\x15\0\0\xc0\x7f", 5)), "a score that is no number, id 2"},
      {good + field(3, field(2, std::string("\x04\0\0\0abcd", 8))), "precompiled_charsmap"},
      {good + "\x0B", "a field of a kind"},
      {good + std::string(12, '\xff'), "more than 64 bits"},
  };
  for (const auto& [model, wanted] : cases) {
    const std::string error = refusal(model);
    for (const char* part : {"m.model: is no whole model of SentencePiece", wanted})
      EXPECT_NE(error.find(part), std::string::npos) << "wanted: " << wanted << "\nfound: " << error;
  }
}

class ModelFolder : public testing::Test {
 protected:
  ModelFolder() {
    std::filesystem::copy(DRIVETRAIN_GOLDEN_DIR "/tokenizer_files/sentencepiece/tokenizer.model", folder_.path());
  }
  void write(const std::string& name, const std::string& text) { std::ofstream(folder_.path(name)) << text; }
  std::string refusal() {
    return error_of([&] { test::make_plugin<Tokenizer>(host_, "sentencepiece")->open(folder_.path()); });
  }
  bool recognized() {
    return !test::make_plugin<Tokenizer>(host_, "sentencepiece")->recognizes(folder_.path()).empty();
  }
  const test::Host host_;
  const test::TempFolder folder_;
};

TEST_F(ModelFolder, tokens_that_were_added_to_a_model_are_refused) {
  EXPECT_EQ(refusal(), "");
  write("added_tokens.json", R"({"<s>": 1})");
  EXPECT_EQ(refusal(), "") << "the model has it, too";
  write("added_tokens.json", R"({"[PAD]": 32000})");
  for (const char* part : {"added_tokens.json", "\"[PAD]\"", "32000", "save_pretrained"})
    EXPECT_NE(refusal().find(part), std::string::npos) << refusal();
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"2": {"content": "<|end|>"}}})");
  for (const char* part : {"tokenizer_config.json", "\"<|end|>\"", "has \"</s>\" there"})
    EXPECT_NE(refusal().find(part), std::string::npos) << refusal();
}

TEST_F(ModelFolder, a_tokenizer_json_of_merges_comes_first) {
  EXPECT_TRUE(recognized());
  write("tokenizer.json", R"({"model": {"type": "Unigram", "vocab": []}})");
  EXPECT_TRUE(recognized());
  write("tokenizer.json", R"({"model": {"type": "BPE", "byte_fallback": true, "vocab": {}, "merges": []}})");
  EXPECT_FALSE(recognized());
  EXPECT_EQ(refusal(), "") << "it can be asked for all the same";
}

}  // namespace
}  // namespace drivetrain::sentencepiece_models
