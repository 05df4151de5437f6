// Sums of squares on CUDA against float64; their bits do not depend on where the tensor lies.
#include "kernels/optimizer/square_sum.h"

#include <memory>

#include "kernels/common/device_test.h"

namespace drivetrain::kernels {
namespace {

using namespace device_test;

class SquareSumOnGpu : public DeviceTest {};

std::vector<double> sums(Dtype dtype, int64_t n, int64_t skip) {
  Numbers x(dtype, random_values(n, 1), skip);
  Array<double> out(std::vector<double>(static_cast<size_t>(blocks_of(n, kSquareBlock)), 7777.0));
  const SquareSum op{x.data(), out.as<double>(), n, dtype};
  run_repeatedly({&out}, [&](void* stream) { return square_sum_cuda(op, stream); });
  std::vector<double> wanted(out.first().size());
  const std::vector<double> values = x.first();
  for (size_t i = 0; i < values.size(); ++i) wanted[i / kSquareBlock] += values[i] * values[i];
  expect_close(out.now(), wanted, 1e-14, 0, "sums");
  return out.now();
}

TEST_F(SquareSumOnGpu, equals_float64_and_does_not_depend_on_alignment) {
  for (const Dtype dtype : kDtypes) {
    for (const int64_t n : {0, 1, 1023, 1024, 9 * 1024 + 5}) {
      SCOPED_TRACE(testing::Message() << n << " elements, dtype " << static_cast<int>(dtype));
      EXPECT_TRUE(sums(dtype, n, 0) == sums(dtype, n, 1)) << "bits moved with the alignment";
    }
  }
}

// Lengths that end inside a block, none at all, and one that is not aligned.
TEST_F(SquareSumOnGpu, many_in_one_launch_have_the_bits_of_each_alone) {
  const std::vector<int64_t> lengths = {0, 1024, 5, 0, 9 * 1024 + 5, 3000, 0};
  for (const Dtype dtype : kDtypes) {
    std::vector<std::unique_ptr<Numbers>> arrays;
    std::vector<SquareSegment> list;
    int64_t blocks = 0;
    for (const int64_t n : lengths) {
      const int64_t skip = n == 3000 ? 1 : 0;
      arrays.push_back(std::make_unique<Numbers>(dtype, random_values(n, 1), skip));
      list.push_back({arrays.back()->data(), nullptr, n, blocks});
      blocks += blocks_of(n, kSquareBlock);
    }
    Array<double> out(std::vector<double>(static_cast<size_t>(blocks), 7777.0));
    for (SquareSegment& s : list) s.sums = out.as<double>() + s.first;
    Array<SquareSegment> segments(list);
    const SquareMany op{segments.as<SquareSegment>(), static_cast<int64_t>(list.size()), blocks, dtype};
    run_repeatedly({&out}, [&](void* stream) { return square_many_cuda(op, stream); });
    std::vector<double> wanted;
    for (const int64_t n : lengths)
      for (const double sum : sums(dtype, n, n == 3000 ? 1 : 0)) wanted.push_back(sum);
    EXPECT_TRUE(out.now() == wanted) << "dtype " << static_cast<int>(dtype);
  }
}

TEST_F(SquareSumOnGpu, sum_in_order_equals_float64) {
  for (const int64_t n : {0, 1, 1024, 40000}) {
    Array<double> x(random_values(n, 1)), out(std::vector<double>{7777.0});
    run_repeatedly({&out},
                   [&](void* stream) { return sum_in_order_cuda(x.as<double>(), n, out.as<double>(), stream); });
    double wanted = 0;
    for (double value : random_values(n, 1)) wanted += value;
    EXPECT_NEAR(out.now()[0], wanted, 1e-11) << n;
  }
}

TEST_F(SquareSumOnGpu, every_segment_has_its_own_sum_whose_bits_do_not_depend_on_its_place) {
  const std::vector<int64_t> counts = {0, 1, 31, 257, 40000, 257};
  std::vector<int64_t> firsts;
  std::vector<double> values, wanted;
  for (const int64_t count : counts) {
    firsts.push_back(static_cast<int64_t>(values.size()));
    const std::vector<double> some = random_values(count, 7);
    values.insert(values.end(), some.begin(), some.end());
    wanted.push_back(0);
    for (const double value : some) wanted.back() += value;
  }
  Array<double> x(values), out(std::vector<double>(counts.size(), 7777.0));
  Array<int64_t> first(firsts), count(counts);
  const SegmentSum op{x.as<double>(), first.as<int64_t>(), count.as<int64_t>(), out.as<double>(),
                      static_cast<int64_t>(counts.size())};
  run_repeatedly({&out}, [&](void* stream) { return segment_sum_cuda(op, stream); });
  for (size_t i = 0; i < counts.size(); ++i) EXPECT_NEAR(out.now()[i], wanted[i], 1e-11) << counts[i] << " elements";
  EXPECT_EQ(out.now()[3], out.now()[5]);
}

}  // namespace
}  // namespace drivetrain::kernels
