// One token of a distribution, and prompts as they are given.
#include "generate/sampling.h"

#include <ATen/ops/tensor.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include <drivetrain/error.h>
#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/temp_folder.h>
#include "generate/conversation.h"
#include "generate/prompts.h"

#include <gtest/gtest.h>

namespace drivetrain::test {
namespace {

// Token 3 is the likeliest, then 1 and 6, which are equal.
at::Tensor logits() { return at::tensor({0.1, 2.0, -1.0, 3.0, 0.5, -INFINITY, 2.0}, at::kDouble).to(at::kFloat); }

RandomKey key(int64_t draw, uint64_t seed = 1) { return {seed, static_cast<uint64_t>(draw), 7, 0, {}}; }

std::map<int64_t, int> drawn(const Sampling& sampling, int draws = 2000) {
  std::map<int64_t, int> count;
  for (int i = 0; i < draws; ++i) ++count[sample(logits(), sampling, key(i))];
  return count;
}

std::set<int64_t> tokens_of(const Sampling& sampling) {
  std::set<int64_t> tokens;
  for (const auto& [token, count] : drawn(sampling)) tokens.insert(token);
  return tokens;
}

TEST(Sampling, the_likeliest_alone_is_greedy) {
  for (const Sampling& alone : {Sampling{0, 0, 1}, Sampling{5, 1, 1}, Sampling{5, 0, 1e-9}, Sampling{5, 3, 1e-9}})
    EXPECT_EQ(tokens_of(alone), std::set<int64_t>{3}) << alone.temperature;
}

TEST(Sampling, top_k_keeps_the_likeliest_and_of_equal_ones_the_smaller) {
  EXPECT_EQ(tokens_of({1, 2, 1}), (std::set<int64_t>{1, 3}));
  EXPECT_EQ(tokens_of({1, 3, 1}), (std::set<int64_t>{1, 3, 6}));
  EXPECT_EQ(tokens_of({1, 7, 1}), (std::set<int64_t>{0, 1, 2, 3, 4, 6})) << "minus infinity never comes";
}

// Probabilities: 3: 0.53, 1 and 6: 0.19 each, 4: 0.04, 0: 0.03, 2: 0.01.
TEST(Sampling, top_p_keeps_the_fewest_that_reach_it) {
  EXPECT_EQ(tokens_of({1, 0, 0.6}), (std::set<int64_t>{1, 3}));
  EXPECT_EQ(tokens_of({1, 0, 0.5}), std::set<int64_t>{3});
  EXPECT_EQ(tokens_of({1, 0, 0.8}), (std::set<int64_t>{1, 3, 6}));
  EXPECT_EQ(tokens_of({1, 2, 0.9}), (std::set<int64_t>{1, 3})) << "of what top_k has left";
}

TEST(Sampling, draws_follow_the_probabilities_of_what_is_left) {
  for (const Sampling& sampling : {Sampling{1, 0, 1}, Sampling{1, 4, 1}, Sampling{2, 3, 1}}) {
    std::map<int64_t, double> p;
    double sum = 0;
    for (const int64_t token : tokens_of(sampling))
      sum += p[token] = std::exp(logits()[token].item<double>() / sampling.temperature);
    constexpr int kDraws = 20000;
    for (const auto& [token, count] : drawn(sampling, kDraws))
      EXPECT_NEAR(count / double{kDraws}, p[token] / sum, 0.02) << token;
  }
}

TEST(Sampling, the_key_decides) {
  const auto texts = [](uint64_t seed) {
    std::vector<int64_t> tokens;
    for (int i = 0; i < 50; ++i) tokens.push_back(sample(logits(), {1, 5, 0.99}, key(i, seed)));
    return tokens;
  };
  EXPECT_EQ(texts(1), texts(1));
  EXPECT_NE(texts(1), texts(2));
}

TEST(Sampling, refuses_what_no_vocabulary_has) {
  const auto refusal = [](const Sampling& sampling) { return error_of([&] { check_sampling(sampling, 7); }); };
  EXPECT_EQ(refusal({1, 7, 1}), "");
  EXPECT_NE(refusal({1, 8, 1}).find("--top-k 8: the model has 7 tokens"), std::string::npos) << refusal({1, 8, 1});
  for (const double p : {0.0, -0.5, 1.5, double{NAN}})
    EXPECT_NE(refusal({1, 0, p}).find("--top-p"), std::string::npos) << p;
  EXPECT_NE(error_of([] { sample(at::tensor({1.0, NAN}), {1, 0, 1}, key(0)); }).find("not finite"), std::string::npos);
}

struct Prompts : testing::Test {
  const TempFolder folder;
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder.path(name), std::ios::binary) << text;
    return folder.path(name);
  }
  std::string refusal(const std::string& name, const std::string& text, bool chat = false) const {
    return error_of([&] { read_prompts(write(name, text), chat); });
  }
};

TEST_F(Prompts, are_lines_or_objects) {
  const std::vector<Prompt> lines = read_prompts(write("a.txt", "one\r\n{\"two\"}\nthree"), false);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].given.as_string(), "one");
  EXPECT_EQ(lines[1].given.as_string(), "{\"two\"}");
  const std::vector<Prompt> objects =
      read_prompts(write("a.jsonl", "{\"prompt\": \"one\", \"id\": 3}\n\n{\"prompt\": [4, 5]}\n"), false);
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(objects[0].given.as_string(), "one");
  EXPECT_EQ(objects[1].given.items().size(), 2u);
  const Prompt chat =
      read_prompts(write("b.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}"), true).at(0);
  EXPECT_TRUE(chat.is_conversation());
  const Prompt spoken = as_conversation(lines[0]);
  EXPECT_EQ(spoken.messages.to_json(), R"([{"role":"user","content":"one"}])");
}

TEST_F(Prompts, say_which_line_is_wrong) {
  const auto expect = [](const std::string& message, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(refusal("a.txt", "x\n\ny\n"), {"a.txt, line 2", "at least one byte"});
  expect(refusal("a.txt", ""), {"holds no prompt"});
  expect(refusal("a.jsonl", "\n"), {"holds no prompt"});
  expect(refusal("a.jsonl", "{\"prompt\": \"x\"}\n{\"prompt\": \"\"}"), {"line 2", "at least one byte"});
  expect(refusal("a.jsonl", "{\"prompt\": []}"), {"line 1", "no token"});
  expect(refusal("a.jsonl", "{\"text\": \"x\"}"), {"line 1", "\"prompt\"", "no such key"});
  expect(refusal("a.jsonl", "{\"prompt\": [1, -2]}"), {"line 1", "token ids"});
  expect(refusal("a.jsonl", "{\"prompt\": "), {"line 1", "column"});
  expect(refusal("a.jsonl", "{\"messages\": []}"), {"line 1", "--chat"});
  expect(refusal("a.jsonl", "{\"messages\": []}", true), {"line 1", "an empty one"});
  expect(error_of([&] { read_prompts(folder.path("none"), false); }), {"--prompts", "no such file"});
  expect(error_of([&] { as_conversation(read_prompts(write("c.jsonl", "{\"prompt\": [1]}"), true).at(0)); }),
         {"line 1", "token ids", "--chat"});
}

// A run keeps no copy of a tokenizer that lies elsewhere.
TEST_F(Prompts, are_written_by_the_template_of_the_tokenizer_wherever_its_files_are) {
  const std::string config = write("tokenizer_config.json", R"({"chat_template": "<{{ messages[0].content }}>"})");
  const Prompt prompt = as_conversation(prompt_of_text("hi", "test"));
  EXPECT_EQ(ConversationWriter("nowhere", "", {config}, true, "").write(prompt), "<hi>");
  EXPECT_EQ(ConversationWriter("nowhere", config, {}, true, "").write(prompt), "<hi>");
  EXPECT_EQ(ConversationWriter(folder.path(), "", {}, true, "").write(prompt), "<hi>");
  const std::string refusal = error_of([&] { ConversationWriter("nowhere", "", {"/other/tokenizer.json"}, true, ""); });
  for (const char* part : {"--chat", "nowhere holds no chat template", "--tokenizer"})
    EXPECT_NE(refusal.find(part), std::string::npos) << refusal;
}

}  // namespace
}  // namespace drivetrain::test
