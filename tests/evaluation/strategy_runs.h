// Runs with strategies, and what is loaded of what they have left and said about it. For tests of `generate` and
// `evaluate`.
#pragma once

#include "evaluation/sets.h"

#include <filesystem>
#include <fstream>

#include "generate/eval_set.h"
#include "generate/inference.h"

namespace drivetrain::test {

inline constexpr const char* kAtEnd =
    R"("checkpoint_policy": {"type": "every", "params": {"steps": 0, "at_end": true}})";

inline constexpr const char* kSmall =
    R"({"num_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 257, "max_position_embeddings": 64})";

struct RunsWithStrategies : testing::Test {
  const TempFolder folder;

  static std::shared_ptr<Log> quiet() { return make_console_log({.level = LogLevel::error}); }

  RunResult run(const std::string& name, const std::string& model, const std::string& strategy,
                const std::string& policy = kAtEnd) const {
    return run_with_sets(folder, name,
                         concat(eval_section(folder, R"("interval": 0)"), R"(, "model": {"type": "gpt", "params": )",
                                model, "}, ", strategy, ", ", policy));
  }
  // A folder of weights for adapters to stand on.
  std::string base() const { return run_with_sets(folder, "base", "\"seed\": 3").folder + "/final"; }
  RunResult lora_run(const std::string& options, const std::string& policy = kAtEnd) const {
    return run("lora", R"({"from": ")" + base() + "\"}",
               R"("lora": {"rank": 4, "targets": ["c_attn", "c_fc"])" + options + "}", policy);
  }
  RunResult biased_run() const {
    return run("biased", R"({"family": "qwen3_moe", "num_layers": 2, "hidden_size": 48, "num_attention_heads": 4,
        "kv_channels": 12, "vocab_size": 257, "max_position_embeddings": 64, "num_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 16, "router_bias_update_rate": 0.2})",
               R"("router_bias": true)");
  }

  static double loss_of(const std::string& from, const std::string& sets_of, const char* name) {
    const EvalSet set = find_eval_set(sets_of, name, built_plugins());
    Inference model(from, set.seed, built_plugins(), quiet());
    return model.evaluate(set.name, choose_eval_set(set, built_plugins()), set.seq_length, 4)
        .figures.find("loss")
        ->as_double();
  }
  static double trained_loss(const RunResult& run, const char* name) {
    return run.metrics.back().find(concat("eval/", name, "/loss"))->as_double();
  }
  static void expect_figures_of_the_run(const RunResult& run) {
    for (const char* name : {"same", "text"})
      EXPECT_NEAR(loss_of(run.folder, run.folder, name), trained_loss(run, name), 4e-6) << name;
  }
  static std::string said_of(const std::string& from) {
    testing::internal::CaptureStderr();
    Inference(from, 1, built_plugins(), make_console_log({.level = LogLevel::warning}));
    return testing::internal::GetCapturedStderr();
  }
  static bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
  // The metadata of a file of weights in `folder` name no step any more.
  static void forget_step(const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    std::string head(4096, '\0');
    file.read(head.data(), static_cast<std::streamsize>(head.size())), file.clear();
    const size_t at = head.find("\"step\":");
    ASSERT_NE(at, std::string::npos) << path;
    file.seekp(static_cast<std::streamoff>(at + 1)), file.write("pets", 4);
  }
  static void remove_checkpoints(const RunResult& run) { std::filesystem::remove_all(run.folder + "/checkpoints"); }
  static void expect_refused(const std::string& from, const std::vector<std::string>& parts) {
    const std::string text = error_of([&] { Inference(from, 1, built_plugins(), quiet()); });
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << "\nin: " << text;
  }
};

}  // namespace drivetrain::test
