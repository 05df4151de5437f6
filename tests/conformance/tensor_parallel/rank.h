// One rank under suite.h: the installed model/gpt under a tensor-parallel plugin as a run would build and drive it,
// with values sliced from the whole model's. Ranks are threads with the local communicator; one rank without a plugin
// is the reference. Legend: B batch, S sequence.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <drivetrain/layout.h>
#include <drivetrain/services.h>
#include <drivetrain/step_context.h>
#include <drivetrain/tensor_parallel.h>

namespace drivetrain::test {

struct TensorParallelTrial {
  std::string name, options;  // of the plugin; "size" among them
  std::string model;          // options of model/gpt
  int64_t ranks = 2;          // 1: the reference, without a plugin
  int64_t vocabulary = 13;    // of the model
  int64_t B = 2, S = 8;
  at::ScalarType dtype = at::kDouble;
  bool fused = false;      // with strategy/fused_block
  bool recompute = false;  // no region keeps what it can compute again
  Part part = Part::whole;
  std::set<std::string> frozen = {};               // parameters that get no slot at all
  std::function<void(Builder&)> inside = nullptr;  // acts on the builder first, as a plugin further inside would
  std::function<void(Builder&)> spoil = nullptr;   // acts on what the plugin built
};

std::string text_of(const TensorParallelTrial& t);

// A gradient with where it belongs in the whole one.
struct CutGradient {
  std::string name;
  std::vector<int64_t> whole;
  int64_t dim = -1;  // that is cut; -1: none
  std::vector<Layout::Range> ranges;
  bool partial = false;
  at::Tensor local;
};

struct TensorParallelResult {
  Tensors outputs, gradients;  // by unit: the sum of what it returned, and the gradient of what it got, last unit first
  at::Tensor evaluated, logits;     // the loss without gradients, and what comes without labels
  std::vector<RowRange> positions;  // that outputs and gradients have
  std::vector<CutGradient> slots;
  std::vector<std::string> log;
};

TensorParallelResult run_tensor_parallel_rank(const TensorParallelTrial& trial, int64_t rank,
                                              const std::shared_ptr<Store>& store);

}  // namespace drivetrain::test
