// Adam on CUDA against float64: every pair of types, both decays, skipping, and a captured step that sees new scalars.
#include "kernels/optimizer/adamw.h"

#include <memory>

#include "kernels/common/device_test.h"

namespace drivetrain::kernels {
namespace {

using namespace device_test;

class AdamOnGpu : public DeviceTest {};

struct Case {
  int64_t n;
  int64_t skip = 0;
  bool l2 = false, correct = true, zero = true, working = true, skipped = false;
};
constexpr Case kCases[] = {{1000}, {4099, 0, true, false, false},       {1001, 1},
                           {3},    {5000, 0, false, true, true, false}, {100, 0, false, true, true, true, true},
                           {0}};

std::vector<double> absolute(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

// One step's memory on the device.
struct Step {
  Numbers value, m, v, grad, working;
  Array<double> hyper{std::vector<double>{1e-2, 0.1, 0.9}}, grad_scale{std::vector<double>{0.5}};
  Array<unsigned char> skip;
  Array<int64_t> step{std::vector<int64_t>{41}};
  Adam op;

  Step(const Case& c, Dtype grad_dtype, Dtype working_dtype)
      : value(Dtype::f32, random_values(c.n, 1), c.skip),
        m(Dtype::f32, random_values(c.n, 2, 0.1), c.skip),
        v(Dtype::f32, absolute(random_values(c.n, 3, 0.1)), c.skip),
        grad(grad_dtype, random_values(c.n, 4), c.skip),
        working(working_dtype, c.n, c.skip),
        skip(std::vector<unsigned char>{c.skipped}) {
    op = {.value = value.as<float>(),
          .m = m.as<float>(),
          .v = v.as<float>(),
          .grad = grad.data(),
          .working = c.working ? working.data() : nullptr,
          .n = c.n,
          .beta2 = 0.99,
          .epsilon = 1e-8,
          .l2 = c.l2,
          .bias_correction = c.correct,
          .zero_grad = c.zero,
          .scalars = {hyper.as<double>(), grad_scale.as<double>(), skip.as<bool>(), step.as<int64_t>()},
          .grad_dtype = grad_dtype,
          .working_dtype = working_dtype};
  }
};

void compare(const Case& c, Dtype grad_dtype, Dtype working_dtype) {
  Step s(c, grad_dtype, working_dtype);
  run_repeatedly({&s.value, &s.m, &s.v, &s.grad, &s.working}, [&](void* stream) { return adam_cuda(s.op, stream); });

  std::vector<double> p = s.value.first(), m = s.m.first(), v = s.v.first(), g = s.grad.first();
  const double lr = 1e-2, decay = 0.1, beta1 = 0.9, beta2 = 0.99;
  for (size_t i = 0; !c.skipped && i < p.size(); ++i) {
    const double gradient = g[i] * 0.5 + (c.l2 ? decay * p[i] : 0);
    m[i] = beta1 * m[i] + (1 - beta1) * gradient;
    v[i] = beta2 * v[i] + (1 - beta2) * gradient * gradient;
    const double first = c.correct ? 1 - std::pow(beta1, 42) : 1, second = c.correct ? 1 - std::pow(beta2, 42) : 1;
    p[i] = p[i] * (c.l2 ? 1 : 1 - lr * decay) - lr / first * m[i] / (std::sqrt(v[i] / second) + 1e-8);
  }
  expect_close(s.value.now(), p, 2e-6, 1e-6, "value");
  expect_close(s.m.now(), m, 2e-6, 1e-7, "m");
  expect_close(s.v.now(), v, 2e-6, 1e-7, "v");
  if (c.zero && !c.skipped) g.assign(g.size(), 0);
  expect_close(s.grad.now(), g, 0, 0, "gradient");
  if (c.working && !c.skipped)
    expect_close(s.working.now(), p, rounding(working_dtype), 1e-6, "working copy");
  else
    expect_close(s.working.now(), s.working.first(), 0, 0, "untouched working copy");
}

TEST_F(AdamOnGpu, equals_float64_for_every_pair_of_types) {
  for (const Case& c : kCases) {
    for (const Dtype grad : kDtypes) {
      for (const Dtype working : kDtypes) {
        SCOPED_TRACE(testing::Message() << c.n << " elements, gradient " << static_cast<int>(grad) << " working "
                                        << static_cast<int>(working));
        compare(c, grad, working);
      }
    }
  }
}

// Two groups, no elements, more than a tile, what is not aligned and what has no working copy.
TEST_F(AdamOnGpu, many_in_one_launch_have_the_bits_of_each_alone) {
  constexpr Case kMany[] = {{0}, {1000}, {2 * kAdamTile + 7}, {0}, {5000, 1}, {100, 0, false, true, true, false}, {0}};
  for (const bool skipped : {false, true}) {
    std::vector<std::unique_ptr<Step>> alone, together;
    std::vector<AdamSegment> list;
    std::vector<Memory*> memory;
    Array<double> hyper(std::vector<double>{1e-2, 0.1, 0.9, 1e-3, 0.0, 0.8});
    int64_t tiles = 0;
    for (const Case& given : kMany) {
      Case c = given;
      c.skipped = skipped;
      const int64_t group = static_cast<int64_t>(list.size()) % 2;
      for (auto* steps : {&alone, &together}) steps->push_back(std::make_unique<Step>(c, Dtype::bf16, Dtype::f16));
      alone.back()->op.scalars.hyper = hyper.as<double>() + 3 * group;
      const Adam& op = together.back()->op;
      list.push_back({op.value, op.m, op.v, op.grad, op.working, op.n, group, tiles});
      tiles += blocks_of(op.n, kAdamTile);
      Step& s = *together.back();
      for (Memory* one : std::initializer_list<Memory*>{&s.value, &s.m, &s.v, &s.grad, &s.working})
        memory.push_back(one);
    }
    Array<AdamSegment> segments(list);
    AdamMany op{segments.as<AdamSegment>(), static_cast<int64_t>(list.size()), tiles, 2, together[0]->op};
    op.shared.scalars.hyper = hyper.as<double>();
    run_repeatedly(memory, [&](void* stream) { return adam_many_cuda(op, stream); });
    for (size_t i = 0; i < alone.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "segment " << i << (skipped ? ", skipped" : ""));
      Step &a = *alone[i], &b = *together[i];
      ASSERT_EQ(adam_cuda(a.op, nullptr), 0);
      check(cudaStreamSynchronize(nullptr));
      EXPECT_TRUE(a.value.bytes() == b.value.bytes() && a.m.bytes() == b.m.bytes() && a.v.bytes() == b.v.bytes());
      EXPECT_TRUE(a.grad.bytes() == b.grad.bytes() && a.working.bytes() == b.working.bytes());
    }
  }
}

TEST_F(AdamOnGpu, more_groups_than_a_block_has_room_for_are_refused) {
  AdamMany op;
  op.groups = kMostAdamGroups + 1;
  EXPECT_EQ(adam_many_cuda(op, nullptr), static_cast<int>(cudaErrorInvalidValue));
}

TEST_F(AdamOnGpu, scalars_are_read_when_the_kernel_runs) {
  const Case c{100};
  Step s(c, Dtype::f32, Dtype::bf16);
  const double still[] = {0.0, 0.0, 0.9};  // no learning rate: the value stays
  check(cudaMemcpy(s.hyper.data(), still, sizeof still, cudaMemcpyHostToDevice));
  ASSERT_EQ(adam_cuda(s.op, nullptr), 0);
  check(cudaStreamSynchronize(nullptr));
  expect_close(s.value.now(), s.value.first(), 0, 0, "value");
}

}  // namespace
}  // namespace drivetrain::kernels
