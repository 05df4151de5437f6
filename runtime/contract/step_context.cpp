#include <drivetrain/step_context.h>

#include <ATen/ops/empty.h>

#include <numeric>

namespace drivetrain {

StepContext::~StepContext() = default;

std::vector<RowRange> StepContext::positions() const {
  const Batch& here = batch();
  if (!here.positions.empty()) return here.positions;
  return {{0, here.tokens_BS.size(1)}};
}

at::Tensor position_ids(const std::vector<RowRange>& positions, const at::Device& device) {
  int64_t count = 0;
  for (const RowRange& range : positions) count += range.count;
  at::Tensor ids = at::empty({count}, at::TensorOptions(at::kLong));
  int64_t* next = ids.mutable_data_ptr<int64_t>();
  for (const RowRange& range : positions) {
    std::iota(next, next + range.count, range.first);
    next += range.count;
  }
  return ids.to(device);
}

}  // namespace drivetrain
