// What every implementation of tensor_parallel must do: several ranks together compute what one does - outputs,
// gradients between units, every parameter's gradient, losses and logits - in float64, with dropout, for the shapes of
// GPT that there are.
//
// run_tensor_parallel_suite takes any installed plugin by name with further options; it is asked for its ranks by
// "size". How a rank is driven stands in rank.h.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>

#include <map>
#include <thread>

#include "conformance/tensor_parallel/rank.h"

namespace drivetrain::test {

// Differences relative to the tensor's largest element.
inline void expect_same(const at::Tensor& given, const at::Tensor& wanted, double tolerance, const std::string& what) {
  ASSERT_EQ(given.sizes(), wanted.sizes()) << what;
  const at::Tensor found = given.to(at::kDouble);
  const double largest = wanted.abs().max().item<double>(), difference = (found - wanted).abs().max().item<double>();
  EXPECT_LE(difference, tolerance * largest) << what << ", largest " << largest;
}

inline at::Tensor at_positions(const at::Tensor& whole, const std::vector<RowRange>& positions) {
  Tensors parts;
  for (const RowRange& range : positions) parts.push_back(whole.narrow(1, range.first, range.count));
  return at::cat(parts, 1);
}

// The whole gradient from all ranks' parts; each element from exactly one, from all, or as their sum.
inline at::Tensor assembled(const std::vector<const CutGradient*>& parts) {
  const CutGradient& first = *parts.front();
  if (first.dim < 0 && !first.partial) {
    for (const CutGradient* part : parts)
      EXPECT_TRUE(at::equal(part->local, first.local)) << first.name << " is not equal on all ranks";
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
    EXPECT_TRUE(at::equal(padding, at::zeros(padding.sizes(), padding.options())))
        << first.name << ": padding has a gradient";
  }
  if (first.dim >= 0) {
    EXPECT_EQ(rows, first.whole[static_cast<size_t>(first.dim)]) << first.name << ": rows held twice or by nobody";
  }
  return whole;
}

inline std::vector<TensorParallelResult> run_tensor_parallel(const TensorParallelTrial& trial) {
  const auto store = make_local_store();
  std::vector<TensorParallelResult> results(static_cast<size_t>(trial.ranks));
  std::vector<std::string> errors(results.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < results.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        at::set_num_threads(1);
        results[rank] = TensorParallelRank(trial, static_cast<int64_t>(rank), store).run();
      } catch (const std::exception& e) {
        errors[rank] = e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t rank = 0; rank < errors.size(); ++rank) EXPECT_EQ(errors[rank], "") << "rank " << rank;
  for (const std::string& error : errors)
    if (!error.empty()) return {};
  return results;
}

// The same model on one rank without a plugin.
inline const TensorParallelResult& whole_model(TensorParallelTrial trial) {
  static std::map<std::string, TensorParallelResult> known;
  trial.ranks = 1, trial.fused = trial.recompute = false, trial.part = Part::whole, trial.spoil = nullptr;
  trial.dtype = at::kDouble, trial.frozen.clear();
  const std::string key = concat(trial.model, trial.B, "x", trial.S);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  std::vector<TensorParallelResult> results = run_tensor_parallel(trial);
  return known[key] = results.empty() ? TensorParallelResult{} : std::move(results[0]);
}

inline void check_tensor_parallel(const TensorParallelTrial& trial) {
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
    EXPECT_TRUE(at::equal(own.outputs.back(), found[0].outputs.back())) << "the loss is not equal on all ranks";
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

// GPT-2 and Llama shapes; 8 heads, so that 4 ranks can have 4 key/value heads. 13 tokens divide by nothing.
inline std::vector<std::string> tensor_parallel_models() {
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

// `more`: options beside "size", as R"(, "key": value)".
inline void run_tensor_parallel_suite(const std::string& name, const std::string& more = "") {
  for (const int64_t ranks : {2, 4}) {
    TensorParallelTrial trial;
    trial.name = name, trial.ranks = ranks;
    trial.options = concat(R"({"size": )", ranks, more, "}");
    for (const std::string& model : tensor_parallel_models()) {
      trial.model = model;
      for (const bool fused : {false, true})
        for (const Part part : {Part::whole, Part::input}) {
          trial.fused = fused, trial.part = part, trial.recompute = false;
          check_tensor_parallel(trial);
        }
      trial.fused = trial.recompute = true;
      check_tensor_parallel(trial);
      trial.recompute = false, trial.dtype = at::kFloat;  // another cross entropy
      check_tensor_parallel(trial);
      trial.dtype = at::kDouble;
    }
    trial.model = tensor_parallel_models()[0];  // with biases, tied
    trial.fused = false;
    for (const std::string word : {"embedding.position.weight", "embedding.word.weight"}) {
      trial.frozen = {word,
                      "block.0.norm1.weight",
                      "block.0.attn.qkv.weight",
                      "block.0.attn.proj.bias",
                      "block.1.mlp.fc.bias",
                      "block.1.mlp.proj.weight"};
      check_tensor_parallel(trial);
    }
    trial.frozen.clear();
    trial.B = 1, trial.recompute = true;
    check_tensor_parallel(trial);
    trial.dtype = at::kFloat;
    check_tensor_parallel(trial);
  }
}

}  // namespace drivetrain::test
