// Runs over packed rows follow the curve of the same documents in rows of their own: no document sees another one, and
// positions begin again, whatever the topology.
#include "support/small_run.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <random>

#include "support/write_safetensors.h"

namespace drivetrain::test {
namespace {

constexpr int64_t kSteps = 4, kRows = 4, kLength = 16, kVocabulary = 101;
// Of the documents of each row. Four of them, so that all steps have as many.
const std::vector<std::vector<int64_t>> kLengths = {{3, 9, 1, 3}, {1, 1, 1, 13}, {4, 4, 4, 4}, {11, 2, 2, 1}};

using Named = std::map<std::string, at::Tensor>;

std::string write(const TempFolder& folder, const std::string& name, const Named& tensors) {
  std::vector<SafetensorsItem> items;
  for (const auto& [key, tensor] : tensors) items.push_back({key, tensor.scalar_type(), tensor.sizes().vec()});
  write_safetensors(folder.path(name), items, {}, [&](const std::string& key) { return tensors.at(key); });
  return folder.path(name);
}

// The same documents twice: kLengths in rows, and each in a row of its own with padding behind it.
struct Data {
  Named packed, alone;
};

Data make_data() {
  const auto longs = at::TensorOptions(at::kLong);
  const int64_t documents = kRows * 4;
  Data data;
  data.packed = {{"tokens", at::zeros({kSteps, 1, kRows, kLength + 1}, longs)},
                 {"labels", at::zeros({kSteps, 1, kRows, kLength}, longs)},
                 {"documents", at::zeros({kSteps, 1, kRows, kLength}, longs)}};
  data.alone = {{"tokens", at::zeros({kSteps, 1, documents, kLength + 1}, longs)},
                {"labels", at::full({kSteps, 1, documents, kLength}, -100, longs)}};
  std::mt19937_64 random(5);
  const auto element = [](Named& tensors, const char* name, int64_t step, int64_t row, int64_t column) -> int64_t& {
    const at::Tensor& t = tensors.at(name);
    return t.mutable_data_ptr<int64_t>()[(step * t.size(2) + row) * t.size(3) + column];
  };
  for (int64_t step = 0; step < kSteps; ++step)
    for (int64_t row = 0, document = 0; row < kRows; ++row)
      for (int64_t n = 0, column = 0; n < 4; ++n, ++document)
        for (int64_t i = 0; i < kLengths[row][n]; ++i, ++column) {
          const auto token = static_cast<int64_t>(random() % kVocabulary);
          const int64_t label = random() % 5 == 0 ? -100 : static_cast<int64_t>(random() % kVocabulary);
          element(data.packed, "tokens", step, row, column) = element(data.alone, "tokens", step, document, i) = token;
          element(data.packed, "labels", step, row, column) = element(data.alone, "labels", step, document, i) = label;
          element(data.packed, "documents", step, row, column) = n;
        }
  return data;
}

std::string dataset(const std::string& file) {
  return concat(R"("dataset": {"type": "token_batches", "params": {"file": ")", file, R"("}})");
}

std::string model(bool rope) {
  return concat(R"("model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 48, "num_attention_heads": 4,
    "num_query_groups": 2, "vocab_size": 101, "max_position_embeddings": 16, "position_embedding_type": ")",
                rope ? "rope" : "learned", R"("}}, "save_final": false)");
}

// The largest distance of losses and norms, in parts of the figure.
double distance(const RunResult& found, const RunResult& wanted) {
  EXPECT_EQ(found.metrics.size(), 4u);
  EXPECT_EQ(wanted.metrics.size(), 4u);
  double most = 0;
  for (size_t i = 0; i < std::min(found.metrics.size(), wanted.metrics.size()); ++i) {
    const auto figure = [&](const RunResult& run, const char* key) { return run.metrics[i].find(key)->as_double(); };
    EXPECT_EQ(figure(found, "tokens"), figure(wanted, "tokens")) << "step " << i + 1;
    for (const char* key : {"loss", "grad_norm"})
      most = std::max(most, std::abs(figure(found, key) - figure(wanted, key)) / figure(wanted, key));
  }
  return most;
}

struct Documents : testing::Test {
  const TempFolder folder;
  const Data data = make_data();
  const std::string packed = write(folder, "packed.safetensors", data.packed),
                    alone = write(folder, "alone.safetensors", data.alone);

  RunResult one_a_row(bool rope) {
    return train_small(folder, concat("alone", rope), "{" + model(rope) + ", " + dataset(alone) + "}", 1, 16);
  }
};

struct Topology {
  const char* section;
  int ranks, accumulation;
};

TEST_F(Documents, packed_rows_follow_the_curve_of_one_document_a_row) {
  const Topology topologies[] = {
      {R"("attention": "standard")", 1, 4},
      {R"("attention": "flash")", 1, 4},
      {R"("fused_block": {"enabled": false})", 1, 4},
      {R"("train_micro_batch_size_per_gpu": 2)", 1, 2},
      {R"("train_micro_batch_size_per_gpu": 4, "fused_block": {"enabled": false})", 1, 1},
      {R"("zero_optimization": {"stage": 3})", 2, 2},
      {R"("tensor_parallel": {"type": "megatron", "params": {"size": 2}})", 2, 4},
      {R"("tensor_parallel": {"type": "megatron", "params": {"size": 2, "sequence_parallel": true}})", 2, 4},
      {R"("pipeline": {"type": "one_f_one_b", "params": {"stages": 2}})", 2, 4},
      {R"("context_parallel": {"type": "ring", "params": {"size": 2}}, "train_micro_batch_size_per_gpu": 2)", 2, 2},
      {R"("context_parallel": {"type": "ring", "params": {"size": 4}}, "attention": "standard")", 4, 4},
      {R"("context_parallel": {"type": "ulysses", "params": {"size": 2}}, "train_micro_batch_size_per_gpu": 2)", 2, 2},
      {R"("context_parallel": [{"type": "ulysses", "params": {"size": 2}}, {"type": "ring", "params": {"size": 2}}])",
       4, 4},
      {R"("activation_checkpointing": {"type": "full"})", 1, 4},
      {R"("activation_checkpointing": {"type": "selective"}, "fused_block": {"enabled": false})", 1, 4},
  };
  for (const bool rope : {true, false}) {
    const RunResult wanted = one_a_row(rope);
    for (int n = 0; const Topology& t : topologies) {
      SCOPED_TRACE(concat(t.section, rope ? ", rope" : ", learned"));
      const std::string text = "{" + model(rope) + ", " + dataset(packed) + ", " + t.section + "}";
      const RunResult found = train_small(folder, concat("packed", ++n, rope), text, t.ranks, t.accumulation);
      EXPECT_LE(distance(found, wanted), 1e-5);
      for (const Value& step : found.metrics) EXPECT_EQ(step.find("documents")->as_int(), kRows * 4);
    }
  }
}

TEST_F(Documents, boundaries_change_the_curve) {
  Named plain = data.packed;
  plain.erase("documents");
  const std::string file = write(folder, "plain.safetensors", plain);
  const RunResult found = train_small(folder, "plain", "{" + model(true) + ", " + dataset(file) + "}", 1, 4);
  EXPECT_GT(distance(found, one_a_row(true)), 1e-3);
}

}  // namespace
}  // namespace drivetrain::test
