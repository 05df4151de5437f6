// optimizer/adamw and optimizer/adam on a GPU: the same updates as on the CPU, up to rounding.
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>

#include <drivetrain/testkit/optimizer/suite.h>
#include "device/open_device.h"
#include "support/plugin_under_test.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

class AdamwOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string problem = error_of([] { open_device("cuda"); });
    if (!problem.empty()) GTEST_SKIP() << problem;
  }
  std::unique_ptr<Optimizer> make(const std::string& name, const std::string& json) {
    return make_plugin<Optimizer>(host, name, json);
  }
  Host host;
};

const at::Device kGpu(at::kCUDA, 0);

UpdateArgs on_gpu(const UpdateArgs& args) {
  return {args.hyper.to(kGpu), args.grad_scale.to(kGpu), args.skip.to(kGpu), args.step.to(kGpu)};
}

Trainables on_gpu(const Trainables& all) {
  Trainables copies = all;
  for (Trainable& t : copies) {
    const bool same = t.working.is_same(t.value);
    t.value = t.value.to(kGpu), t.grad = t.grad.to(kGpu);
    t.working = same ? t.value : t.working.to(kGpu);
  }
  return copies;
}

void set_grads_of_both(const Trainables& host, const Trainables& device, int64_t step) {
  set_grads(host, step);
  for (size_t i = 0; i < host.size(); ++i) device[i].grad.copy_(host[i].grad);
}

// Rounding of a few operations on numbers of size 1, and one of bfloat16 for the working copy.
void expect_close(const Trainables& host, const Trainables& device) {
  for (size_t i = 0; i < host.size(); ++i) {
    EXPECT_TRUE(at::allclose(device[i].value.cpu(), host[i].value, 1e-5, 1e-6)) << host[i].param->name;
    EXPECT_TRUE(at::equal(device[i].working.cpu(), device[i].value.to(device[i].working.scalar_type()).cpu()));
  }
}

TEST_F(AdamwOnGpu, updates_as_on_the_cpu) {
  for (const char* name : {"adamw", "adam"}) {
    for (const bool bfloat16 : {false, true}) {
      const std::string json = R"({"lr": 0.01, "weight_decay": 0.1, "adam_w_mode": false})";
      const auto cpu = make(name, json), gpu = make(name, json);
      const Trainables a = test_trainables(*cpu, bfloat16), b = on_gpu(a);
      cpu->init(a), gpu->init(b);
      for (int64_t step = 0; step < 3; ++step) {
        set_grads_of_both(a, b, step);
        cpu->update(a, update_args(*cpu, step, 0.5));
        gpu->update(b, on_gpu(update_args(*gpu, step, 0.5)));
      }
      expect_close(a, b);
    }
  }
}

TEST_F(AdamwOnGpu, values_of_the_host_reach_their_working_copies_on_the_device) {
  for (const bool bfloat16 : {false, true}) {
    const auto alone = make("adamw", "{}"), both = make("adamw", "{}");
    const Trainables a = test_trainables(*alone, bfloat16);
    Trainables b = a;
    for (Trainable& t : b) {
      t.working = t.working.to(kGpu);
      t.value = t.value.clone().pin_memory();
    }
    alone->init(a), both->init(b);
    for (int64_t step = 0; step < 3; ++step) {
      set_grads(a, step);
      alone->update(a, update_args(*alone, step, 0.5));
      both->update(b, update_args(*both, step, 0.5));
      for (size_t i = 0; i < a.size(); ++i)  // waits for the device, as a step does
        EXPECT_TRUE(at::equal(b[i].working.cpu(), a[i].working)) << a[i].param->name;
    }
  }
}

TEST_F(AdamwOnGpu, values_of_the_device_reach_their_working_copies_on_the_host) {
  for (const bool bfloat16 : {false, true}) {
    const auto alone = make("adamw", "{}"), both = make("adamw", "{}");
    const Trainables a = test_trainables(*alone, bfloat16);
    Trainables b = on_gpu(a);
    for (size_t i = 0; i < a.size(); ++i) b[i].working = a[i].working.clone().pin_memory();
    alone->init(a), both->init(b);
    for (int64_t step = 0; step < 3; ++step) {
      set_grads_of_both(a, b, step);
      alone->update(a, update_args(*alone, step, 0.5));
      both->update(b, on_gpu(update_args(*both, step, 0.5)));
      for (const Trainable& t : b)
        EXPECT_TRUE(at::equal(t.value.cpu().to(t.working.scalar_type()), t.working)) << t.param->name;
    }
    expect_close(a, b);
  }
}

TEST_F(AdamwOnGpu, skip_leaves_everything) {
  const auto optimizer = make("adamw", "{}");
  const Trainables before = test_trainables(*optimizer), after = on_gpu(before);
  optimizer->init(after);
  for (const Trainable& t : after) t.grad.fill_(1);
  optimizer->update(after, on_gpu(update_args(*optimizer, 0, 1, true)));
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(after[i].value.cpu(), before[i].value));
}

TEST_F(AdamwOnGpu, scalars_on_the_cpu_are_refused) {
  const auto optimizer = make("adamw", "{}");
  const Trainables all = on_gpu(test_trainables(*optimizer));
  optimizer->init(all);
  EXPECT_NE(error_of([&] { optimizer->update(all, update_args(*optimizer, 0)); }).find("the step's scalars are on cpu"),
            std::string::npos);
}

}  // namespace
}  // namespace drivetrain
