// Random numbers on CUDA: each element's own, whatever part of a tensor is at hand.
#include "kernels/random/dropout.h"

#include "kernels/common/device_test.h"
#include "kernels/random/philox.h"

namespace drivetrain::kernels {
namespace {

using namespace device_test;

class RandomOnGpu : public DeviceTest {};

constexpr uint32_t kKey0 = 0x12345678, kKey1 = 0x9abcdef0;

double number(int64_t element, uint64_t sample) {
  return uniform_of(philox_block(static_cast<uint64_t>(element) / 4, sample, kKey0, kKey1).word[element % 4]);
}

// Samples of 40 elements or so: runs that begin and end inside a block of four, and a sample beyond 2^32.
const RandomPlaces kPlaces[] = {{3, 40, 0, 0, 40, 5, kKey0, kKey1},
                                {2, 41, 7, 0, 41, 0, kKey0, kKey1},
                                {3, 20, 1002, 3, 11, (uint64_t{1} << 33) + 1, kKey0, kKey1},
                                {1, 1, 3, 0, 1, 9, kKey0, kKey1},
                                {2, 2000, (int64_t{1} << 34) + 2, 5, 1990, 1, kKey0, kKey1},
                                {4, 10, 5, 2, 0, 0, kKey0, kKey1},
                                {0, 10, 5, 2, 8, 0, kKey0, kKey1}};

// `inside(element's number)` at the places of the run, `outside` at all others.
template <class Inside>
std::vector<double> expected(const RandomPlaces& p, const std::vector<double>& outside, const Inside& inside) {
  std::vector<double> values = outside;
  for (int64_t s = 0; s < p.samples; ++s)
    for (int64_t i = 0; i < p.count; ++i) {
      const size_t at = static_cast<size_t>(s * p.row + p.local + i);
      values[at] = inside(number(p.whole + i, p.first_sample + static_cast<uint64_t>(s)), at);
    }
  return values;
}

// Those of Random123's file of known answers: all bits zero, all bits one.
TEST_F(RandomOnGpu, philox_gives_the_known_answers) {
  const PhiloxWords zeros = philox_block(0, 0, 0, 0), ones = philox_block(~0ULL, ~0ULL, ~0U, ~0U);
  const uint32_t of_zeros[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  const uint32_t of_ones[] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(zeros.word[i], of_zeros[i]);
    EXPECT_EQ(ones.word[i], of_ones[i]);
  }
}

TEST_F(RandomOnGpu, every_place_has_its_number_and_no_other_is_touched) {
  for (const RandomPlaces& p : kPlaces) {
    Numbers out(Dtype::f32, p.samples * p.row);
    const Uniform op{out.as<float>(), p};
    run_repeatedly({&out}, [&](void* stream) { return uniform_cuda(op, stream); });
    expect_close(out.now(), expected(p, out.first(), [](double u, size_t) { return u; }), 0, 0, "number");
  }
}

TEST_F(RandomOnGpu, dropout_keeps_and_scales_by_the_same_numbers) {
  for (const Dtype dtype : kDtypes)
    for (const RandomPlaces& p : kPlaces) {
      Numbers x(dtype, random_values(p.samples * p.row, 1)), out(dtype, p.samples * p.row);
      const Dropout op{x.data(), out.data(), 0.25F, 4.0F / 3.0F, p, dtype};
      run_repeatedly({&out}, [&](void* stream) { return dropout_cuda(op, stream); });
      const std::vector<double> values = x.first();
      const auto kept = [&](double u, size_t at) {
        return u >= 0.25 ? static_cast<double>(static_cast<float>(values[at]) * (4.0F / 3.0F)) : 0.0;
      };
      expect_close(out.now(), expected(p, out.first(), kept), dtype == Dtype::f32 ? 0 : rounding(dtype), 0, "dropped");
    }
}

}  // namespace
}  // namespace drivetrain::kernels
