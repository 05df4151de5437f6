#include <drivetrain/step_context.h>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

#include <drivetrain/error.h>

namespace drivetrain {

StepContext::~StepContext() = default;
KeyValueCache::~KeyValueCache() = default;

std::vector<RowRange> columns_of(const std::vector<RowRange>& part, const std::vector<RowRange>& whole) {
  std::vector<RowRange> columns;
  for (RowRange rest : part) {
    int64_t column = 0;
    for (const RowRange& range : whole) {
      const int64_t skipped = rest.first - range.first;
      if (rest.count > 0 && skipped >= 0 && skipped < range.count) {
        const int64_t count = std::min(rest.count, range.count - skipped);
        columns.push_back({column + skipped, count});
        rest.first += count, rest.count -= count;
      }
      column += range.count;
    }
    if (rest.count > 0)
      throw fail(ErrorCode::internal, "positions ", rest.first, " to ", rest.first + rest.count - 1,
                 " are not among this rank's");
  }
  return columns;
}

std::string cu_seqlens_problem(const std::vector<int64_t>& cu_seqlens, int64_t rows, int64_t length) {
  const int64_t end = rows * length;
  if (cu_seqlens.empty()) return {};
  if (cu_seqlens.front() != 0 || cu_seqlens.back() != end)
    return concat("cu_seqlens must ascend from 0 to ", end, "; found ", cu_seqlens.front(), " to ", cu_seqlens.back());
  int64_t row = 0;
  for (size_t i = 0; i + 1 < cu_seqlens.size(); ++i) {
    const int64_t begin = cu_seqlens[i], next = cu_seqlens[i + 1];
    if (next <= begin) return concat("cu_seqlens must ascend from 0 to ", end, "; found ", next, " behind ", begin);
    if (begin == row * length) ++row;
    if (next > row * length)
      return concat("cu_seqlens must have the begin of every row; ", row * length, " is missing between ", begin,
                    " and ", next);
  }
  return {};
}

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
