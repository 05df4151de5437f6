#include "token_sums.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

namespace drivetrain::router_bias {

void TokenSums::attach(const Mesh& mesh) {
  rank_ = mesh.rank(), world_size_ = mesh.world_size();
  for (const Axis& axis : mesh.axes()) {
    if (!axis.joins_gradients || axis.size == 1) continue;
    std::vector<int64_t> others = mesh.ranks({axis.name});
    std::erase(others, rank_);
    groups_.push_back({std::move(others), mesh.group(axis.name)});
  }
}

void TokenSums::sum(at::Tensor& values, const SumPositions& sum_positions) {
  if (sum_positions) {
    if (!knows_positions_) leave_out_axes_of(sum_positions, values);
    sum_positions(values);
  }
  for (const AxisGroup& axis : groups_) axis.group->all_reduce(values)->wait();
}

// Which ranks the function sums over is its own affair (context parallelism, whose axis has other data, too; tensor
// parallelism that cuts positions, whose axis has not). So each rank puts a one into its place.
void TokenSums::leave_out_axes_of(const SumPositions& sum_positions, const at::Tensor& like) {
  at::Tensor places = at::zeros({world_size_}, like.options());
  places[rank_].fill_(1);
  sum_positions(places);
  const at::Tensor summed = places.to(at::kCPU);
  const double* ones = summed.const_data_ptr<double>();
  std::erase_if(groups_, [&](const AxisGroup& axis) { return ones[axis.ranks.front()] > 0; });
  knows_positions_ = true;
}

}  // namespace drivetrain::router_bias
