// Cross entropy over parts of a vocabulary on CUDA: the parts together against float64 over the whole row.
#include "kernels/loss/part_cross_entropy.h"

#include <algorithm>
#include <memory>

#include "kernels/common/device_test.h"

namespace drivetrain::kernels {
namespace {

using namespace device_test;

class PartCrossEntropyOnGpu : public DeviceTest {};

struct Case {
  int64_t rows, vocabulary, columns, skip;
  double spread;
  float factor = 1, cap = 0;  // of the logits
};
// Ragged ends, padding, a rank with nothing but padding.
constexpr Case kCases[] = {{3, 1000, 500, 0, 4}, {4, 1003, 502, 1, 4}, {3, 50257, 25216, 0, 4},
                           {2, 5, 128, 3, 4},    {3, 640, 320, 0, 60}, {4, 1003, 502, 1, 9, 0.5F, 5}};
constexpr int64_t kRanks = 2;

void compare(const Case& c, Dtype dtype, bool gradient) {
  const double scale = 0.5;
  std::vector<int64_t> label_values;
  for (int64_t r = 0; r < c.rows; ++r)
    label_values.push_back(r == 1 ? -100 : (r * 7919 + c.vocabulary - 1) % c.vocabulary);
  Array<int64_t> labels(label_values);
  std::vector<std::unique_ptr<Numbers>> logits;
  std::vector<std::vector<double>> given;
  std::vector<double> gathered;
  const auto op_of = [&](int64_t rank) {
    PartCrossEntropy op;
    op.logits = logits[static_cast<size_t>(rank)]->data(), op.labels = labels.as<int64_t>();
    op.rows = c.rows, op.columns = c.columns, op.first = rank * c.columns, op.vocabulary = c.vocabulary;
    op.valid = std::clamp<int64_t>(c.vocabulary - op.first, 0, c.columns);
    op.ranks = kRanks, op.gradient = gradient, op.scale = scale, op.dtype = dtype;
    op.logit_scale = c.factor, op.softcap = c.cap;
    return op;
  };
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    logits.push_back(std::make_unique<Numbers>(dtype, random_values(c.rows * c.columns, 1 + rank, c.spread), c.skip));
    given.push_back(logits.back()->first());
    Array<double> part(std::vector<double>(static_cast<size_t>(c.rows * 3), 7777.0));
    PartCrossEntropy op = op_of(rank);
    op.part = part.as<double>();
    run_repeatedly({&part}, [&](void* stream) { return part_cross_entropy_begin_cuda(op, stream); });
    const std::vector<double> found = part.now();
    gathered.insert(gathered.end(), found.begin(), found.end());
  }
  Array<double> parts(gathered);
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    Array<double> loss(std::vector<double>(static_cast<size_t>(c.rows), 7777.0));
    PartCrossEntropy op = op_of(rank);
    op.parts = parts.as<double>(), op.loss = loss.as<double>();
    Numbers& own = *logits[static_cast<size_t>(rank)];
    run_repeatedly({&own, &loss}, [&](void* stream) { return part_cross_entropy_end_cuda(op, stream); });
    std::vector<double> wanted_loss, wanted = given[static_cast<size_t>(rank)];
    for (int64_t r = 0; r < c.rows; ++r) {
      const int64_t label = label_values[static_cast<size_t>(r)];
      const auto logit = [&](int64_t v) {
        const double z =
            c.factor * given[static_cast<size_t>(v / c.columns)][static_cast<size_t>(r * c.columns + v % c.columns)];
        return c.cap > 0 ? c.cap * std::tanh(z / c.cap) : z;
      };
      const auto slope = [&](double y) { return c.factor * (c.cap > 0 ? 1 - y * y / c.cap / c.cap : 1.0); };
      double top = logit(0), sum = 0;
      for (int64_t v = 0; v < c.vocabulary; ++v) top = std::max(top, logit(v));
      for (int64_t v = 0; v < c.vocabulary; ++v) sum += std::exp(logit(v) - top);
      wanted_loss.push_back(label < 0 ? 0 : std::log(sum) + top - logit(label));
      for (int64_t i = 0; gradient && i < c.columns; ++i) {
        const int64_t v = rank * c.columns + i;
        const bool counts = label >= 0 && v < c.vocabulary;
        wanted[static_cast<size_t>(r * c.columns + i)] =
            counts ? scale * (std::exp(logit(v) - top) / sum - (v == label ? 1 : 0)) * slope(logit(v)) : 0;
      }
    }
    expect_close(loss.now(), wanted_loss, 2e-6, 2e-6, "loss");
    expect_close(own.now(), wanted, std::max(rounding(dtype), 3e-5), dtype == Dtype::f16 ? 6e-8 : 1e-9, "logits");
  }
}

TEST_F(PartCrossEntropyOnGpu, parts_together_equal_float64_over_the_whole_row) {
  for (const Case& c : kCases) {
    for (const Dtype dtype : kDtypes) {
      SCOPED_TRACE(testing::Message() << c.rows << " x " << c.vocabulary << " dtype " << static_cast<int>(dtype));
      compare(c, dtype, true);
    }
  }
}

TEST_F(PartCrossEntropyOnGpu, without_gradient_the_logits_stay_as_they_are) { compare(kCases[1], Dtype::bf16, false); }

}  // namespace
}  // namespace drivetrain::kernels
