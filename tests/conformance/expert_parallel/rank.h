// One rank under suite.h: the experts of one layer as the toolkit makes them, under an expert-parallel plugin as a run
// would plan, build and drive it, with values sliced from the whole layer's. Ranks are threads with the local
// communicator; one rank without a plugin is the reference. Legend: E experts, D hidden, R rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/expert_parallel.h>
#include <drivetrain/layers.h>
#include <drivetrain/layout.h>

namespace drivetrain::test {

struct ExpertTrial {
  std::string name, options;  // of the plugin; "size" among them
  int64_t ranks = 2;
  int64_t experts = 8;
  std::string activation = "swiglu";
  at::ScalarType dtype = at::kDouble;
  // How many rows a rank has for an expert in a micro-batch, and how many that are nobody's.
  std::function<int64_t(int64_t rank, int64_t expert, int64_t micro)> rows = nullptr;
  int64_t nobodys = 0;
  // If set, a rank has this many tokens in a micro-batch instead, with two choices each, of which some are nobody's.
  std::function<int64_t(int64_t rank, int64_t micro)> tokens = nullptr;
  bool frozen = false;                             // the experts' weights
  bool recompute = false;                          // every forward once more, of which the second counts
  std::function<void(Builder&)> inside = nullptr;  // acts on the builder first, as a plugin further inside would
  std::function<void(Builder&)> spoil = nullptr;   // acts on what the plugin built
};
std::string text_of(const ExpertTrial& trial);

// Rows of one rank and micro-batch, sorted by expert, or tokens and their choices; values depend on rank, micro-batch,
// expert and number alone.
struct ExpertRows {
  at::Tensor x_RD, dy_RD, counts_E;
  Routing routing;
};
ExpertRows rows_of_rank(const ExpertTrial& trial, int64_t rank, int64_t micro);

struct ExpertGradient {
  std::string name;
  std::vector<int64_t> whole;
  std::vector<Layout::Range> ranges;  // rows of dimension 0; all where it is not cut
  at::Tensor local;                   // undefined where the parameter is frozen
};
inline constexpr int64_t kExpertMicros = 2;
struct ExpertResult {
  at::Tensor y[kExpertMicros], dx[kExpertMicros], evaluated[kExpertMicros];
  at::Tensor dweights[kExpertMicros];     // of tokens
  std::vector<ExpertGradient> gradients;  // sums over both micro-batches
};

ExpertResult run_expert_rank(const ExpertTrial& trial, int64_t rank, const std::shared_ptr<Store>& store);
// The same rows of all ranks by one process without a plugin, in float64.
std::vector<ExpertResult> run_whole_experts(const ExpertTrial& trial);

}  // namespace drivetrain::test
