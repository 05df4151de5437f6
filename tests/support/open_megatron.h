// For tests: a megatron dataset that is open, and its rows.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <drivetrain/dataset.h>

#include <drivetrain/testkit/kit/temp_folder.h>
#include "support/plugin_under_test.h"
#include "support/token_pair.h"

namespace drivetrain::test {

struct OpenRun {
  int64_t rows = 4, steps = 10, vocabulary = 250;
  uint64_t seed = 5;
};

class OpenMegatron {
 public:
  explicit OpenMegatron(const std::string& json, const OpenRun& run = {})
      : OpenMegatron(parse_json(json, "test"), run) {}
  explicit OpenMegatron(const Value& params, const OpenRun& run = {}) : run_(run) {
    host.services.seed = run.seed;
    dataset = make_plugin_from<Dataset>(host, "megatron", params);
    RunFacts of_run;
    of_run.train_batch_size = run.rows, of_run.train_steps = run.steps;
    ModelFacts model;
    model.vocab_size = run.vocabulary;
    facts = dataset->open(of_run, model);
  }
  Batch read(int64_t step, int64_t first, int64_t rows, DataPart part = DataPart::train) const {
    Batch batch;
    dataset->read({part, step, first, rows}, batch);
    return batch;
  }
  // The tokens of sample k, counted over all steps from 0, and its last label.
  std::vector<int64_t> sample(int64_t k, DataPart part = DataPart::train) const {
    const Batch batch = read(k / run_.rows + 1, k % run_.rows, 1, part);
    std::vector<int64_t> row(batch.tokens_BS.const_data_ptr<int64_t>(),
                             batch.tokens_BS.const_data_ptr<int64_t>() + batch.tokens_BS.numel());
    row.push_back(batch.labels_BS.const_data_ptr<int64_t>()[batch.labels_BS.numel() - 1]);
    return row;
  }

  Host host;
  std::unique_ptr<Dataset> dataset;
  DatasetFacts facts;

 private:
  const OpenRun run_;
};

// Options with the paths of a folder: R"({"data_path": "@/a"})".
inline Value options_in(const TempFolder& folder, std::string json) {
  for (size_t at = 0; (at = json.find('@', at)) != std::string::npos;) json.replace(at, 1, folder.path());
  return parse_json(json, "test");
}

}  // namespace drivetrain::test
