// A small model of bytes, and sets to evaluate it on.
#pragma once

#include <fstream>

#include "support/small_run.h"

namespace drivetrain::test {

// What the questions of write_questions are, for computations by hand.
struct AskedByHand {
  std::string prompt;
  std::vector<std::string> choices;
  int64_t right = 0;
};

inline std::vector<AskedByHand> questions_by_hand() {
  std::vector<AskedByHand> list;
  const char* const words[] = {"a", "no", "tea", "coal", "seven", "window", "nothing", "elephant"};
  for (int64_t i = 0; i < 24; ++i) {
    AskedByHand one{concat("q", i * i, ":"), {words[i % 8], words[(3 * i + 1) % 8], words[(5 * i + 2) % 8]}};
    // The longest is right: hardly ever the likeliest, but often the likeliest for its length.
    for (size_t c = 1; c < one.choices.size(); ++c)
      if (one.choices[c].size() > one.choices[static_cast<size_t>(one.right)].size())
        one.right = static_cast<int64_t>(c);
    list.push_back(one);
  }
  return list;
}

inline std::string write_questions(const TempFolder& folder) {
  std::ofstream file(folder.path("questions.jsonl"));
  for (const AskedByHand& one : questions_by_hand()) {
    const Value::Array choices(one.choices.begin(), one.choices.end());
    file << Value(Value::Object{{"context", one.prompt}, {"choices", choices}, {"label", one.right}}).to_json() << "\n";
  }
  return folder.path("questions.jsonl");
}

inline std::string write_text(const TempFolder& folder) {
  std::ofstream file(folder.path("held_out.txt"));
  for (int i = 0; i < 30; ++i) file << "sentence " << i * i << " of a text.\n";
  return folder.path("held_out.txt");
}

// Rows of the training's own validation part; questions; a text.
inline std::string eval_section(const TempFolder& folder, const std::string& interval = R"("interval": 2)") {
  return concat(R"("eval": {)", interval, R"(, "sets": {
    "same": {"type": "perplexity", "params": {"iters": 3, "batch_size": 4,
             "source": {"type": "synthetic", "params": {"seq_length": 32}}}},
    "choices": {"type": "multiple_choice", "params": {"files": [")",
                write_questions(folder), R"("]}},
    "text": {"type": "perplexity", "params": {"files": [")",
                write_text(folder), R"("]}}}})");
}

// Four rows per step.
inline Value eval_config(const std::string& sections) {
  Value value = parse_json(R"({
    "train_steps": 5, "seed": 11, "train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "monitors": "jsonl",
    "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 48, "num_attention_heads": 4,
              "vocab_size": 257, "max_position_embeddings": 64, "normalization": "layernorm"}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 32}}, "eval_interval": 2, "eval_iters": 3,
    "communicator": {"type": "local", "params": {"share": false}}, "checkpoint_policy": false,
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-3}}})",
                           "test");
  const Value further = parse_json("{" + sections + "}", "test");
  for (const Value::Member& m : further.members()) value.set(m.key, m.value);
  return value;
}

inline RunResult run_with_sets(const TempFolder& folder, const std::string& name, const std::string& sections,
                               int ranks = 1) {
  Value config = eval_config(sections);
  config.set("output_dir", folder.path(name));
  return run_threads(config, ranks);
}

// The figures of the sets in one step, by their names in metrics.jsonl.
inline Value set_figures(const Value& step) {
  Value figures = Value::object();
  for (const Value::Member& m : step.members())
    if (m.key.starts_with("eval/")) figures.set(m.key, m.value);
  return figures;
}

}  // namespace drivetrain::test
