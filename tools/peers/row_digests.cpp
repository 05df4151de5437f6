// The rows of dataset/megatron as digests, for tools/peers/megatron_samples.py.
// row_digests PARAMS.json VOCABULARY TRAIN VALID prints {"train": [...], "valid": [...], "notes": {...}}: the first
// TRAIN and VALID samples, and what the dataset notes.
#include <iostream>

#include <drivetrain/dataset.h>

#include "support/plugin_under_test.h"
#include "support/row_digest.h"

namespace drivetrain {
namespace {

Value digests(Dataset& dataset, DataPart part, int64_t count) {
  Value::Array list;
  for (int64_t k = 0; k < count; ++k) {
    Batch batch;
    dataset.read({part, k + 1, 0, 1}, batch);
    list.push_back(test::row_digest(batch, 0));
  }
  return Value(std::move(list));
}

int print(const std::string& params, int64_t vocabulary, int64_t train, int64_t valid) {
  const test::Host host;
  const auto dataset = test::make_plugin_from<Dataset>(host, "megatron", read_json_file(params));
  RunFacts run;
  run.train_batch_size = 1, run.train_steps = train;
  ModelFacts model;
  model.vocab_size = vocabulary;
  const DatasetFacts facts = dataset->open(run, model);
  const Value found = Value::Object{{"train", digests(*dataset, DataPart::train, train)},
                                    {"valid", digests(*dataset, DataPart::validation, valid)},
                                    {"notes", facts.notes}};
  std::cout << found.to_json() << '\n';
  return 0;
}

}  // namespace
}  // namespace drivetrain

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: row_digests PARAMS.json VOCABULARY TRAIN VALID\n";
    return 2;
  }
  try {
    return drivetrain::print(argv[1], std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]));
  } catch (const drivetrain::Error& e) {
    std::cerr << "row_digests: error: " << e.what() << "\n";
    return static_cast<int>(e.code());
  }
}
