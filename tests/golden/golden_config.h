// The settings file of a golden case as a config of ours: with what the file cannot say (steps, model, data, decay)
// added.
#pragma once

#include <string>

#include <drivetrain/value.h>

namespace drivetrain::test {

inline std::string golden_folder(const std::string& name) { return std::string(DRIVETRAIN_GOLDEN_DIR) + "/" + name; }

// Ways of cutting the run up, as sections added to the config; `ranks` of all, of which `data_ranks` share the global
// batch.
struct GoldenCut {
  std::string name = {};
  std::string sections = "{}";
  int ranks = 1, data_ranks = 1;
  int accumulation = 0;  // 0: the case's, where there is room for it
};

// decay: "matrices" or "all".
inline Value golden_config(const std::string& name, const GoldenCut& cut, const std::string& decay) {
  const std::string folder = golden_folder(name);
  const Value facts = read_json_file(folder + "/case.json");
  Value config = read_json_file(folder + "/" + facts.find("settings")->as_string());
  const int64_t batch = config.find("train_batch_size")->as_int();
  int64_t accumulation = config.find("gradient_accumulation_steps")->as_int();
  if (cut.accumulation > 0) accumulation = cut.accumulation;
  if (batch % (accumulation * cut.data_ranks) != 0) accumulation = 1;
  config.set("gradient_accumulation_steps", accumulation);
  config.set("train_micro_batch_size_per_gpu", batch / accumulation / cut.data_ranks);
  config.set("train_steps", 20);
  Value optimizer = *config.find("optimizer");
  Value params = *optimizer.find("params");
  params.set("decay", decay);
  optimizer.set("params", params);
  config.set("optimizer", optimizer);
  config.set("model", parse_json("{\"type\": \"gpt\", \"params\": {}}", ""))
      .members()
      .back()
      .value.set("from", folder + "/" + facts.find("model")->as_string());
  config.set("dataset", parse_json("{\"type\": \"token_batches\", \"params\": {}}", ""))
      .members()
      .back()
      .value.set("file", folder + "/" + facts.find("batches")->as_string());
  const Value more = parse_json(cut.sections, cut.name);
  for (const Value::Member& section : more.members()) config.set(section.key, section.value);
  return config;
}

// `processes` share the case's global batch; four of them leave no room for its accumulation.
inline Value golden_config(const std::string& name, int processes, const std::string& decay) {
  return golden_config(name, GoldenCut{.ranks = processes, .data_ranks = processes}, decay);
}

}  // namespace drivetrain::test
