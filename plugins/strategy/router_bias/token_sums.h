// Sums over all ranks of a pipeline stage that have other tokens, each of them once.
#pragma once

#include <functional>
#include <vector>

#include <drivetrain/mesh.h>

namespace drivetrain::router_bias {

class TokenSums {
 public:
  using SumPositions = std::function<void(at::Tensor&)>;  // RouterSpec::sum_positions

  // Collective over all ranks. Before the first sum.
  void attach(const Mesh& mesh);
  // In place; float64. The same function in every call. Collective over the ranks that it sums.
  void sum(at::Tensor& values, const SumPositions& sum_positions);

 private:
  struct AxisGroup {
    std::vector<int64_t> ranks;  // that differ from this one along the axis
    GroupPtr group;
  };
  void leave_out_axes_of(const SumPositions& sum_positions, const at::Tensor& like);

  std::vector<AxisGroup> groups_;  // along axes with other data
  int64_t rank_ = 0, world_size_ = 1;
  bool knows_positions_ = false;
};

}  // namespace drivetrain::router_bias
