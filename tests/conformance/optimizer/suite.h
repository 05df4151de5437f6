// What every optimizer must do whatever its formula. A plugin's test calls run_optimizer_suite with a maker of fresh
// ones.
#pragma once

#include <gtest/gtest.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>

#include <functional>
#include <map>
#include <random>

#include <drivetrain/optimizer.h>

#include "support/plugin_under_test.h"

namespace drivetrain::test {

using OptimizerMaker = std::function<std::unique_ptr<Optimizer>()>;

inline at::Tensor uneven_numbers(int64_t n, uint64_t seed, at::ScalarType type = at::kFloat) {
  at::Tensor x = at::empty({n}, at::kFloat);
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  float* data = x.mutable_data_ptr<float>();
  for (int64_t i = 0; i < n; ++i) data[i] = normal(generator);
  return x.to(type);
}

inline ParamPtr test_param(const std::string& name, std::vector<int64_t> shape) {
  return std::make_shared<Param>(name, Layout::whole(std::move(shape)), InitRule::zeros());
}

// A whole trainable of `param` with values from `value`; in bfloat16 mode `working` is another tensor.
inline Trainable trainable(const Optimizer& optimizer, const ParamPtr& param, const at::Tensor& value,
                           bool bfloat16 = false) {
  Trainable t;
  t.param = param, t.value = value.clone(), t.layout = param->layout, t.group = optimizer.group_of(*param);
  t.working = bfloat16 ? t.value.to(at::kBFloat16) : t.value;
  t.grad = at::zeros_like(t.value);
  return t;
}

inline UpdateArgs update_args(const Optimizer& optimizer, int64_t step, double grad_scale = 1, bool skip = false) {
  const std::vector<Hyper> groups = optimizer.groups();
  UpdateArgs args;
  args.hyper = at::empty({static_cast<int64_t>(groups.size()), 3}, at::kDouble);
  double* row = args.hyper.mutable_data_ptr<double>();
  for (const Hyper& h : groups) *row++ = h.lr, *row++ = h.weight_decay, *row++ = h.momentum;
  args.grad_scale = at::scalar_tensor(grad_scale, at::kDouble);
  args.skip = at::scalar_tensor(skip, at::kBool);
  args.step = at::scalar_tensor(step, at::kLong);
  return args;
}

// Keeps what an optimizer shows, and gives it back to another.
struct Keeper : StateVisitor {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, int64_t> integers;
  std::map<std::string, double> numbers;
  bool loading = false;
  void tensor(const std::string& name, at::Tensor& t, const Layout& layout) override {
    const std::string key = concat(name, "@", layout.begin);
    if (loading)
      t.copy_(tensors.at(key));
    else
      EXPECT_TRUE(tensors.emplace(key, t.clone()).second) << key << " twice";
  }
  void integer(const std::string& name, int64_t& value) override {
    if (loading)
      value = integers.at(name);
    else
      integers[name] = value;
  }
  void number(const std::string& name, double& value) override {
    if (loading)
      value = numbers.at(name);
    else
      numbers[name] = value;
  }
};

// Three tensors, one of them large enough to be shared by threads and of a size no vector divides.
inline Trainables test_trainables(const Optimizer& optimizer, bool bfloat16 = false) {
  const ParamPtr params[] = {test_param("a.weight", {301, 333}), test_param("a.bias", {301}),
                             test_param("b.weight", {7, 5})};
  Trainables all;
  for (const ParamPtr& p : params)
    all.push_back(trainable(optimizer, p, uneven_numbers(p->layout.global_numel(), all.size() + 1), bfloat16));
  return all;
}

inline void set_grads(const Trainables& all, int64_t step) {
  for (size_t i = 0; i < all.size(); ++i) all[i].grad.copy_(uneven_numbers(all[i].grad.numel(), 100 * (step + 1) + i));
}

inline void expect_equal_values(const Trainables& a, const Trainables& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::equal(a[i].value, b[i].value)) << a[i].param->name;
    EXPECT_TRUE(at::equal(a[i].working, b[i].working)) << a[i].param->name;
  }
}

// Steps [first, last) in one call each.
inline void run_steps(Optimizer& optimizer, const Trainables& all, int64_t first, int64_t last,
                      double grad_scale = 0.5) {
  for (int64_t step = first; step < last; ++step) {
    set_grads(all, step);
    optimizer.update(all, update_args(optimizer, step, grad_scale));
  }
}

inline void check_chunks_equal_one_call(const OptimizerMaker& make) {
  auto whole = make(), chunked = make();
  const Trainables a = test_trainables(*whole), b = test_trainables(*chunked);
  whole->init(a), chunked->init(b);
  run_steps(*whole, a, 0, 3);
  for (int64_t step = 0; step < 3; ++step) {
    set_grads(b, step);
    for (const size_t i : {2, 0, 1}) chunked->update({b[i]}, update_args(*chunked, step, 0.5));
  }
  expect_equal_values(a, b);
}

// Every tensor cut at odd places: the parts must have the bits of the whole.
inline void check_sharded_equals_whole(const OptimizerMaker& make) {
  auto whole = make(), sharded = make();
  const Trainables a = test_trainables(*whole), source = test_trainables(*sharded);
  Trainables parts;
  for (const Trainable& t : source) {
    const int64_t n = t.value.numel(), cuts[] = {0, 1, n / 3 + 1, n};
    for (int i = 0; i < 3; ++i) {
      Trainable part = t;
      part.layout.begin = cuts[i], part.layout.end = cuts[i + 1];
      part.value = part.working = t.value.narrow(0, cuts[i], cuts[i + 1] - cuts[i]);
      part.grad = t.grad.narrow(0, cuts[i], cuts[i + 1] - cuts[i]);
      parts.push_back(part);
    }
  }
  whole->init(a), sharded->init(parts);
  for (int64_t step = 0; step < 3; ++step) {
    set_grads(a, step), set_grads(source, step);
    whole->update(a, update_args(*whole, step, 0.5));
    sharded->update(parts, update_args(*sharded, step, 0.5));
  }
  expect_equal_values(a, source);
}

inline void check_skip_leaves_everything(const OptimizerMaker& make) {
  auto optimizer = make(), reference = make();
  const Trainables a = test_trainables(*optimizer), b = test_trainables(*reference);
  optimizer->init(a), reference->init(b);
  set_grads(a, 9);
  optimizer->update(a, update_args(*optimizer, 0, 1, true));
  expect_equal_values(a, b);
  run_steps(*optimizer, a, 0, 2), run_steps(*reference, b, 0, 2);
  expect_equal_values(a, b);  // the moments were left too
}

inline void check_gradients_are_not_touched(const OptimizerMaker& make) {
  auto optimizer = make();
  const Trainables all = test_trainables(*optimizer);
  optimizer->init(all);
  set_grads(all, 0);
  Tensors before;
  for (const Trainable& t : all) before.push_back(t.grad.clone());
  optimizer->update(all, update_args(*optimizer, 0, 0.5));
  for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(at::equal(before[i], all[i].grad));
}

inline void check_state_survives(const OptimizerMaker& make) {
  auto first = make(), second = make();
  const Trainables a = test_trainables(*first), b = test_trainables(*second);
  first->init(a);
  run_steps(*first, a, 0, 2);
  Keeper keeper;
  first->state(keeper);
  double bytes = 0, elements = 0;
  for (const auto& [name, tensor] : keeper.tensors) bytes += static_cast<double>(tensor.nbytes());
  for (const Trainable& t : a) elements += static_cast<double>(t.value.numel());
  EXPECT_EQ(bytes, first->state_bytes_per_element() * elements);

  for (size_t i = 0; i < a.size(); ++i) b[i].value.copy_(a[i].value);
  second->init(b);
  keeper.loading = true;
  second->state(keeper);
  run_steps(*first, a, 2, 4), run_steps(*second, b, 2, 4);
  expect_equal_values(a, b);
}

// value keeps the float32 numbers, working their rounding, and the values are those of a run without a working copy.
inline void check_working_copy(const OptimizerMaker& make) {
  auto plain = make(), mixed = make();
  const Trainables a = test_trainables(*plain), b = test_trainables(*mixed, true);
  plain->init(a), mixed->init(b);
  run_steps(*plain, a, 0, 2), run_steps(*mixed, b, 0, 2);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::equal(a[i].value, b[i].value));
    EXPECT_TRUE(at::equal(b[i].working, b[i].value.to(at::kBFloat16)));
  }
}

// A gradient in 16 bits is read as the number it is.
inline void check_narrow_gradients(const OptimizerMaker& make) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    auto narrow = make(), wide = make();
    Trainables a = test_trainables(*narrow);
    const Trainables b = test_trainables(*wide);
    narrow->init(a), wide->init(b);
    for (int64_t step = 0; step < 2; ++step) {
      set_grads(b, step);
      for (size_t i = 0; i < b.size(); ++i) a[i].grad = b[i].grad.to(type), b[i].grad.copy_(a[i].grad);
      narrow->update(a, update_args(*narrow, step, 0.5)), wide->update(b, update_args(*wide, step, 0.5));
    }
    expect_equal_values(a, b);
  }
}

inline void check_groups(const OptimizerMaker& make) {
  auto optimizer = make();
  const int groups = static_cast<int>(optimizer->groups().size());
  for (const Trainable& t : test_trainables(*optimizer)) {
    EXPECT_GE(t.group, 0);
    EXPECT_LT(t.group, groups);
  }
}

inline void check_foreign_trainables_are_refused(const OptimizerMaker& make) {
  auto optimizer = make();
  const Trainables all = test_trainables(*optimizer);
  optimizer->init({all[0]});
  EXPECT_NE(error_of([&] { optimizer->update({all[1]}, update_args(*optimizer, 0)); }).find("a.bias was not in init"),
            std::string::npos);
}

inline void run_optimizer_suite(const OptimizerMaker& make) {
  check_groups(make);
  check_chunks_equal_one_call(make);
  check_sharded_equals_whole(make);
  check_skip_leaves_everything(make);
  check_gradients_are_not_touched(make);
  check_state_survives(make);
  check_working_copy(make);
  check_narrow_gradients(make);
  check_foreign_trainables_are_refused(make);
}

}  // namespace drivetrain::test
