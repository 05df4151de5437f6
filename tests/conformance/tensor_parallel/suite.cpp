#include <drivetrain/testkit/tensor_parallel/suite.h>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <map>

#include <drivetrain/error.h>

#include <drivetrain/testkit/kit/decorators.h>
#include <drivetrain/testkit/kit/equal_tensors.h>
#include <drivetrain/testkit/kit/rank_threads.h>
#include <drivetrain/testkit/kit/stop.h>
#include <drivetrain/testkit/kit/terms.h>

namespace drivetrain::test {
namespace {

// Differences relative to the tensor's largest element.
void expect_same(const at::Tensor& given, const at::Tensor& wanted, double tolerance, const std::string& what) {
  ASSERT_EQ(given.sizes(), wanted.sizes()) << what;
  const at::Tensor found = given.to(at::kDouble);
  const double largest = wanted.abs().max().item<double>(), difference = (found - wanted).abs().max().item<double>();
  EXPECT_LE(difference, tolerance * largest) << what << ", largest " << largest;
}

at::Tensor at_positions(const at::Tensor& whole, const std::vector<RowRange>& positions) {
  Tensors parts;
  for (const RowRange& range : positions) parts.push_back(whole.narrow(1, range.first, range.count));
  return at::cat(parts, 1);
}

// The whole gradient from all ranks' parts; each element from exactly one, from all, or as their sum.
at::Tensor assembled(const std::vector<const CutGradient*>& parts) {
  const CutGradient& first = *parts.front();
  if (first.dim < 0 && !first.partial) {
    for (const CutGradient* part : parts)
      EXPECT_TRUE(equal_tensors(part->local, first.local)) << first.name << " is not equal on all ranks";
    return first.local;
  }
  at::Tensor whole = at::zeros(first.whole, first.local.options());
  int64_t rows = 0;
  for (const CutGradient* part : parts) {
    if (part->dim < 0) {
      whole.add_(part->local);
      continue;
    }
    int64_t at = 0;
    for (const auto& range : part->ranges) {
      whole.narrow(part->dim, range.first, range.count).add_(part->local.narrow(part->dim, at, range.count));
      at += range.count;
    }
    rows += at;
    const at::Tensor padding = part->local.narrow(part->dim, at, part->local.size(part->dim) - at);
    EXPECT_TRUE(equal_tensors(padding, at::zeros(padding.sizes(), padding.options())))
        << first.name << ": padding has a gradient";
  }
  if (first.dim >= 0) {
    EXPECT_EQ(rows, first.whole[static_cast<size_t>(first.dim)]) << first.name << ": rows held twice or by nobody";
  }
  return whole;
}

std::vector<TensorParallelResult> run_tensor_parallel(const TensorParallelTrial& trial) {
  const auto store = make_memory_store();
  std::vector<TensorParallelResult> results(static_cast<size_t>(trial.ranks));
  const std::vector<std::string> errors = on_threads(trial.ranks, [&](int64_t rank) {
    results[static_cast<size_t>(rank)] = run_tensor_parallel_rank(trial, rank, store);
  });
  expect_no_errors(errors);
  for (const std::string& error : errors)
    if (!error.empty()) return {};
  return results;
}

// The same model on one rank without a plugin.
const TensorParallelResult& whole_model(TensorParallelTrial trial) {
  static std::map<std::string, TensorParallelResult> known;
  trial.ranks = 1, trial.fused = trial.recompute = false, trial.part = Part::whole, trial.spoil = nullptr;
  trial.dtype = at::kDouble, trial.frozen.clear();
  const std::string key = concat(trial.model, trial.B, "x", trial.S, trial.inside ? " decorated" : "");
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  std::vector<TensorParallelResult> results = run_tensor_parallel(trial);
  return known[key] = results.empty() ? TensorParallelResult{} : std::move(results[0]);
}

TensorParallelTrial trial_of(const Subject& subject, int64_t ranks) {
  Value options = subject.options;
  options.set("size", ranks);
  TensorParallelTrial trial;
  trial.name = subject.name, trial.ranks = ranks, trial.options = options.to_json();
  return trial;
}

// On the model's own blocks and on fused ones, with backward in one and in two halves.
void check_models(TensorParallelTrial trial) {
  for (const std::string& model : tensor_parallel_models()) {
    trial.model = model;
    for (const bool fused : {false, true})
      for (const Part part : {Part::whole, Part::input}) {
        trial.fused = fused, trial.part = part;
        check_tensor_parallel(trial);
      }
  }
}

void check_recomputed_models(TensorParallelTrial trial) {
  trial.fused = trial.recompute = true, trial.part = Part::input;
  for (const std::string& model : tensor_parallel_models()) {
    trial.model = model;
    check_tensor_parallel(trial);
  }
}

// float32 has another cross entropy.
void check_float32(TensorParallelTrial trial) {
  trial.fused = true, trial.part = Part::input, trial.dtype = at::kFloat;
  for (const std::string& model : tensor_parallel_models()) {
    trial.model = model;
    check_tensor_parallel(trial);
  }
}

void check_frozen(TensorParallelTrial trial) {
  trial.model = tensor_parallel_models()[0];  // with biases, tied
  trial.part = Part::input;
  for (const std::string word : {"embedding.position.weight", "embedding.word.weight"}) {
    trial.frozen = {word,
                    "block.0.norm1.weight",
                    "block.0.attn.qkv.weight",
                    "block.0.attn.proj.bias",
                    "block.1.mlp.fc.bias",
                    "block.1.mlp.proj.weight"};
    check_tensor_parallel(trial);
  }
}

void check_one_row(TensorParallelTrial trial) {
  trial.model = tensor_parallel_models()[0];
  trial.part = Part::input, trial.B = 1, trial.recompute = true;
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    trial.dtype = dtype;
    check_tensor_parallel(trial);
  }
}

// What a plugin further inside adds to every linear layer and embedding is there, whole, with its gradients; kept, put
// off, computed again.
void check_decorated_layers(TensorParallelTrial trial) {
  trial.inside = [](Builder& builder) { builder.layers = std::make_shared<TermLayers>(builder.layers); };
  for (const std::string& model : tensor_parallel_models()) {
    trial.model = model;
    for (const bool fused : {false, true})
      for (const Part part : {Part::whole, Part::input}) {
        trial.fused = fused, trial.part = part, trial.recompute = fused && part == Part::input;
        check_tensor_parallel(trial);
      }
  }
  trial.B = 1, trial.dtype = at::kFloat;
  check_tensor_parallel(trial);
}

using TensorParallelCheck = void (*)(TensorParallelTrial);
constexpr std::pair<const char*, TensorParallelCheck> kTensorParallelChecks[] = {
    {"ranks_together_compute_what_one_does", check_models},
    {"nothing_need_be_kept", check_recomputed_models},
    {"float32_follows_float64", check_float32},
    {"frozen_parameters_get_no_gradient", check_frozen},
    {"one_row_is_enough", check_one_row},
    {"computes_with_decorated_layers", check_decorated_layers},
};

}  // namespace

void check_tensor_parallel(const TensorParallelTrial& trial) {
  SCOPED_TRACE(text_of(trial));
  // Sums over ranks are added in another order; float32 is compared with float64, after some hundred roundings in a
  // row.
  const double tolerance = trial.dtype == at::kDouble ? 1e-12 : 200 * 0x1p-23;
  const TensorParallelResult& wanted = whole_model(trial);
  const std::vector<TensorParallelResult> found = run_tensor_parallel(trial);
  if (found.empty() || wanted.outputs.empty()) return;
  for (size_t rank = 0; rank < found.size(); ++rank) {
    SCOPED_TRACE(concat("rank ", rank));
    const TensorParallelResult& own = found[rank];
    const size_t units = wanted.outputs.size();
    ASSERT_EQ(own.outputs.size(), units);
    for (size_t i = 0; i + 1 < units; ++i)
      expect_same(own.outputs[i], at_positions(wanted.outputs[i], own.positions), tolerance,
                  concat("output of unit ", i));
    expect_same(own.outputs.back(), wanted.outputs.back(), tolerance, "loss");
    for (size_t i = 0; i < own.gradients.size(); ++i)
      expect_same(own.gradients[i], at_positions(wanted.gradients[i], own.positions), tolerance,
                  concat("gradient ", i, " from the end"));
    expect_same(own.evaluated, wanted.evaluated, tolerance, "loss in evaluation");
    expect_same(own.logits, wanted.logits, tolerance, "logits");
    EXPECT_TRUE(equal_tensors(own.outputs.back(), found[0].outputs.back())) << "the loss is not equal on all ranks";
  }
  ASSERT_EQ(found[0].slots.size() + trial.frozen.size(), wanted.slots.size());
  bool cut = false;
  size_t i = 0;
  for (const CutGradient& whole : wanted.slots) {
    if (trial.frozen.contains(whole.name)) continue;
    std::vector<const CutGradient*> parts;
    for (const TensorParallelResult& own : found) parts.push_back(&own.slots[i]);
    ++i;
    ASSERT_EQ(parts[0]->name, whole.name);
    cut |= parts[0]->dim >= 0;
    expect_same(assembled(parts), whole.local, tolerance, whole.name);
  }
  EXPECT_TRUE(cut) << "no parameter is cut";
  if (trial.fused) {
    EXPECT_EQ(found[0].log, std::vector<std::string>{"strategy/fused_block: computes 2 of 2 blocks"});
  }
}

std::vector<std::string> tensor_parallel_models() {
  const std::string base =
      R"({"num_layers": 2, "hidden_size": 12, "num_attention_heads": 8, "kv_channels": 4, "ffn_hidden_size": 20, )"
      R"("max_position_embeddings": 16, "vocab_size": 13, )";
  return {
      base + R"("hidden_dropout": 0.2, "attention_dropout": 0.3})",
      base + R"("hidden_dropout": 0, "attention_dropout": 0, "activation": "gelu", "num_query_groups": 4,
                "untie_embeddings_and_output_weights": true})",
      base + R"("hidden_dropout": 0.2, "attention_dropout": 0.3, "normalization": "rmsnorm", "activation": "swiglu",
                "position_embedding_type": "rope", "num_query_groups": 4, "add_bias": false,
                "untie_embeddings_and_output_weights": true})",
      base +
          R"("hidden_dropout": 0.1, "attention_dropout": 0, "activation": "swiglu", "add_bias": false, "add_qkv_bias": true})",
  };
}

Suite tensor_parallel_suite() {
  Suite suite;
  for (const auto& [name, check] : kTensorParallelChecks)
    suite.push_back({name, [check = check](const Subject& subject) {
                       ASSERT_TRUE(4 % subject.rank_multiple == 0) << "the suite has 2 and 4 ranks";
                       for (const int64_t ranks : {2, 4})
                         if (ranks % subject.rank_multiple == 0) check(trial_of(subject, ranks));
                     }});
  suite.push_back(state_survives_a_stop(2, true));
  suite.push_back(decorators_compose(2, true));
  return suite;
}

}  // namespace drivetrain::test
