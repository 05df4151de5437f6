// Texts that grow through the cache, against whole sequences, on models of Hugging Face folders and of runs.
#include "generate/decoder.h"

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <filesystem>
#include <fstream>

#include <drivetrain/testkit/kit/host.h>
#include <drivetrain/testkit/kit/temp_folder.h>
#include "generate/cache_probe.h"
#include "generate/text_tokens.h"
#include "log/log_console.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

using Text = std::vector<int64_t>;

std::string golden_model(const std::string& name) { return concat(DRIVETRAIN_GOLDEN_DIR "/", name, "/model"); }

std::shared_ptr<Log> quiet() { return make_console_log({.level = LogLevel::error}); }

Text text_of(int64_t length, int64_t start) {
  Text text;
  for (int64_t i = 0; i < length; ++i) text.push_back((start + i * i * 7) % 256);
  return text;
}

at::Tensor whole_logits(Inference& model, const Text& text) {
  return model.logits(at::tensor(text, at::kLong).unsqueeze(0))[0][-1];
}

double difference(const at::Tensor& found, const at::Tensor& wanted) {
  return ((found - wanted).abs().max() / wanted.abs().max()).item<double>();
}

struct Shape {
  const char *folder, *attention, *dtype;
};

class Decoded : public testing::TestWithParam<Shape> {
 protected:
  Inference model{
      golden_model(GetParam().folder), 1, built_plugins(), quiet(), {"cpu", GetParam().dtype, GetParam().attention}};
  LinesLog log;
  Decoder decoder{model, log};
  double tolerance() const { return GetParam().dtype == std::string("f32") ? 1e-5 : 0.03; }

  // Grows the texts greedily; at every token the logits are those of the whole text.
  std::vector<Text> grow(std::vector<Text> texts, int64_t most, const std::vector<int64_t>& lasts = {}) {
    decoder.begin(texts, most);
    for (int64_t i = 0; i < most && !decoder.growing().empty(); ++i) {
      const at::Tensor logits = decoder.logits();
      std::vector<std::optional<int64_t>> next;
      for (size_t b = 0; b < decoder.growing().size(); ++b) {
        Text& text = texts[decoder.growing()[b]];
        const at::Tensor found = logits[static_cast<int64_t>(b)], wanted = whole_logits(model, text).to(at::kFloat);
        EXPECT_LE(difference(found, wanted), tolerance()) << "text " << decoder.growing()[b] << ", token " << i;
        const bool ends = !lasts.empty() && i == lasts[decoder.growing()[b]];
        next.push_back(ends ? std::nullopt : std::optional(found.argmax().item<int64_t>()));
        if (next.back()) text.push_back(*next.back());
      }
      decoder.add(next);
    }
    return texts;
  }
};

TEST_P(Decoded, takes_the_cache) { EXPECT_EQ(why_no_cache(model), ""); }

TEST_P(Decoded, has_the_logits_of_the_whole_text) {
  grow({text_of(9, 3)}, 20);
  EXPECT_TRUE(log.warnings.empty()) << log.warnings.front();
}

TEST_P(Decoded, has_them_for_texts_of_unequal_lengths_that_end_one_by_one) {
  grow({text_of(1, 5), text_of(12, 60), text_of(4, 90), text_of(12, 17)}, 12, {5, 11, 2, 8});
  grow({text_of(2, 200)}, 5);  // the next batch begins anew
}

INSTANTIATE_TEST_SUITE_P(Of, Decoded,
                         testing::Values(Shape{"gpt2_tiny", "", "f32"}, Shape{"llama_tiny", "", "f32"},
                                         Shape{"gpt2_tiny", "standard", "f32"}, Shape{"llama_tiny", "standard", "f32"},
                                         Shape{"llama_tiny", "", "bf16"}),
                         [](const auto& info) {
                           const Shape& s = info.param;
                           return concat(s.folder, *s.attention ? "_" : "", s.attention, "_", s.dtype);
                         });

TEST(Decoder, a_text_in_a_batch_is_what_it_is_alone) {
  Inference model(golden_model("llama_tiny"), 1, built_plugins(), quiet());
  LinesLog log;
  Decoder decoder(model, log);
  const auto greedy = [&](std::vector<Text> texts) {
    decoder.begin(texts, 15);
    for (int i = 0; i < 15; ++i) {
      const at::Tensor tokens = decoder.logits().argmax(1);
      std::vector<std::optional<int64_t>> next;
      for (size_t b = 0; b < texts.size(); ++b) {
        texts[b].push_back(tokens[static_cast<int64_t>(b)].item<int64_t>());
        next.emplace_back(texts[b].back());
      }
      decoder.add(next);
    }
    return texts;
  };
  const std::vector<Text> together = greedy({text_of(7, 1), text_of(3, 40)});
  EXPECT_EQ(together[0], greedy({text_of(7, 1)})[0]);
  EXPECT_EQ(together[1], greedy({text_of(3, 40)})[0]);
}

// The golden models have 64 positions.
TEST(Decoder, a_text_beyond_the_positions_sees_the_last_of_them_and_says_so_once) {
  Inference model(golden_model("gpt2_tiny"), 1, built_plugins(), quiet());
  LinesLog log;
  Decoder decoder(model, log);
  Text text = text_of(62, 9);
  decoder.begin({text}, 8);
  for (int i = 0; i < 6; ++i) {
    const at::Tensor found = decoder.logits()[0];
    const Text seen(text.end() - std::min<std::ptrdiff_t>(std::ssize(text), 64), text.end());
    EXPECT_LE(difference(found, whole_logits(model, seen)), 1e-5) << text.size();
    text.push_back(found.argmax().item<int64_t>());
    decoder.add({text.back()});
  }
  ASSERT_EQ(log.warnings.size(), 1u);
  EXPECT_NE(log.warnings[0].find("64 positions"), std::string::npos) << log.warnings[0];
}

// A text beside one that is too long, or becomes so, or has ended: to the bit what it is alone, in 16 bits too.
TEST(Decoder, a_text_stays_in_the_cache_beside_one_beyond_the_positions) {
  Inference model(golden_model("llama_tiny"), 1, built_plugins(), quiet(), {"cpu", "bf16", ""});
  LinesLog log;
  Decoder decoder(model, log);
  const auto logits_of_first = [&](std::vector<Text> texts, size_t ends) {
    Tensors logits;
    decoder.begin(texts, 8);
    for (size_t i = 0; i < 8; ++i) {
      const at::Tensor all = decoder.logits();
      EXPECT_EQ(all.size(0), static_cast<int64_t>(decoder.growing().size()));
      logits.push_back(all[0].clone());
      std::vector<std::optional<int64_t>> next;
      for (size_t b = 0; b < decoder.growing().size(); ++b) {
        const bool last = decoder.growing()[b] == 1 && i == ends;
        next.push_back(last ? std::nullopt : std::optional(all[static_cast<int64_t>(b)].argmax().item<int64_t>()));
      }
      decoder.add(next);
    }
    return at::stack(logits);
  };
  const Text own = text_of(7, 1);
  const at::Tensor alone = logits_of_first({own}, 8);
  EXPECT_TRUE(log.warnings.empty());
  for (const int64_t length : {62, 66}) {
    EXPECT_TRUE(logits_of_first({own, text_of(length, 9)}, 8).equal(alone)) << length;
    EXPECT_TRUE(logits_of_first({own, text_of(length, 9), text_of(63, 4)}, 5).equal(alone)) << length;
  }
  EXPECT_EQ(log.warnings.size(), 1u);
}

// What the plan says of weights and of keys and values is what there is once texts of unequal lengths have grown.
TEST_P(Decoded, has_the_memory_that_was_planned) {
  const InferenceSettings on{"cpu", GetParam().dtype, GetParam().attention};
  PreparedInference prepared = prepare_inference(golden_model(GetParam().folder), 1, built_plugins(), quiet(), on);
  const GrowingTexts texts{3, 12, 10}, longer{3, 12, 1000}, wider{6, 12, 10};
  const GenerationMemory planned = planned_generation(*prepared.run, texts);
  const double of_positions = *planned_generation(*prepared.run, longer).keys;
  EXPECT_DOUBLE_EQ(of_positions / *planned.keys, 64.0 / 22) << "no text has more positions than the model";
  EXPECT_DOUBLE_EQ(*planned_generation(*prepared.run, wider).keys, 2 * *planned.keys);
  Inference loaded(std::move(prepared), built_plugins());
  Decoder grown(loaded, log);
  grown.begin({text_of(12, 5), text_of(4, 60), text_of(7, 90)}, 10);
  for (int i = 0; i < 10; ++i) {
    grown.logits();
    grown.add({1, 2, 3});
  }
  const GenerationMemory measured = loaded.measured_memory(grown.most_cache_bytes());
  EXPECT_EQ(planned.keys, measured.keys);
  EXPECT_DOUBLE_EQ(planned.weights, measured.weights);
  EXPECT_GT(planned.passing, 0);
}

// {"type", "params"} of generation_config.json and config.json; the tokenizer's own.
TEST(TextEnds, are_those_of_the_files) {
  const TempFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.path(name)) << text;
  };
  TokenizerFacts tokenizer;
  tokenizer.eos = 3;
  const auto ends = [&] { return text_ends(folder.path(""), tokenizer).ends; };
  EXPECT_EQ(ends(), std::set<int64_t>{3});
  write("config.json", R"({"eos_token_id": [5, 6]})");
  EXPECT_EQ(ends(), (std::set<int64_t>{3, 5, 6}));
  write("generation_config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(ends(), (std::set<int64_t>{3, 7})) << "as transformers: config.json only where there is no other";
}

}  // namespace
}  // namespace drivetrain::test
