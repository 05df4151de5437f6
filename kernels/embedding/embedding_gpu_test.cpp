// Embedding backward on CUDA: the bits of additions in order of position, ids that fill the batch, ids outside the
// vocabulary.
#include "kernels/embedding/embedding.h"

#include <algorithm>
#include <numeric>

#include "kernels/common/device_test.h"

namespace drivetrain::kernels {
namespace {

using namespace device_test;

class EmbeddingOnGpu : public DeviceTest {};

struct Case {
  int64_t tokens, vocabulary, columns, skip;
  int64_t distinct;  // ids are position * 7 mod this, less one
};
constexpr Case kCases[] = {
    {50, 20, 64, 0, 13}, {100, 7, 776, 0, 1}, {97, 30, 33, 0, 34}, {40, 20, 64, 1, 3}, {0, 5, 8, 0, 1}};

TEST_F(EmbeddingOnGpu, rows_of_an_id_are_added_in_order_of_position) {
  for (const Case& c : kCases) {
    for (const Dtype dtype : kDtypes) {
      SCOPED_TRACE(testing::Message() << c.tokens << " x " << c.columns << " dtype " << static_cast<int>(dtype));
      std::vector<int64_t> ids(static_cast<size_t>(c.tokens)), order(ids.size()), sorted(ids.size());
      for (size_t i = 0; i < ids.size(); ++i)
        ids[i] = c.distinct == 1 ? 3 : static_cast<int64_t>(i) * 7 % c.distinct - 1;
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t a, int64_t b) { return ids[static_cast<size_t>(a)] < ids[static_cast<size_t>(b)]; });
      std::transform(order.begin(), order.end(), sorted.begin(),
                     [&](int64_t i) { return ids[static_cast<size_t>(i)]; });
      Numbers dy(dtype, random_values(c.tokens * c.columns, 1), c.skip);
      Numbers dweight(Dtype::f32, random_values(c.vocabulary * c.columns, 2), c.skip);
      Array<int64_t> id_memory(ids), order_memory(order), sorted_memory(sorted);
      const EmbeddingBackward op{
          dy.data(), id_memory.as<int64_t>(),    dweight.as<float>(),        c.tokens, c.vocabulary, c.columns,
          dtype,     order_memory.as<int64_t>(), sorted_memory.as<int64_t>()};
      run_repeatedly({&dweight}, [&](void* stream) { return embedding_backward_cuda(op, stream); });

      std::vector<double> wanted = dweight.first();
      const std::vector<double> rows = dy.first();
      for (size_t n = 0; n < ids.size(); ++n) {
        if (ids[n] < 0 || ids[n] >= c.vocabulary) continue;
        for (int64_t i = 0; i < c.columns; ++i) {
          double& to = wanted[static_cast<size_t>(ids[n] * c.columns + i)];
          to = static_cast<double>(
              static_cast<float>(to) +
              static_cast<float>(rows[n * static_cast<size_t>(c.columns) + static_cast<size_t>(i)]));
        }
      }
      expect_close(dweight.now(), wanted, 0, 0, "dweight");
    }
  }
}

}  // namespace
}  // namespace drivetrain::kernels
