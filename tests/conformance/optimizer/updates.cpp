#include <drivetrain/testkit/optimizer/updates.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>

#include <random>

namespace drivetrain::test {

at::Tensor uneven_numbers(int64_t n, uint64_t seed, at::ScalarType type) {
  at::Tensor x = at::empty({n}, at::kFloat);
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  float* data = x.mutable_data_ptr<float>();
  for (int64_t i = 0; i < n; ++i) data[i] = normal(generator);
  return x.to(type);
}

ParamPtr test_param(const std::string& name, std::vector<int64_t> shape) {
  return std::make_shared<Param>(name, Layout::whole(std::move(shape)), InitRule::zeros());
}

Trainable trainable(const Optimizer& optimizer, const ParamPtr& param, const at::Tensor& value, bool bfloat16) {
  Trainable t;
  t.param = param, t.value = value.clone(), t.layout = param->layout, t.group = optimizer.group_of(*param);
  t.working = bfloat16 ? t.value.to(at::kBFloat16) : t.value;
  t.grad = at::zeros_like(t.value);
  return t;
}

UpdateArgs update_args(const Optimizer& optimizer, int64_t step, double grad_scale, bool skip) {
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

Trainables test_trainables(const Optimizer& optimizer, bool bfloat16) {
  const ParamPtr params[] = {test_param("a.weight", {301, 333}), test_param("a.bias", {301}),
                             test_param("b.weight", {7, 5})};
  Trainables all;
  for (const ParamPtr& p : params)
    all.push_back(trainable(optimizer, p, uneven_numbers(p->layout.global_numel(), all.size() + 1), bfloat16));
  return all;
}

void set_grads(const Trainables& all, int64_t step) {
  for (size_t i = 0; i < all.size(); ++i) all[i].grad.copy_(uneven_numbers(all[i].grad.numel(), 100 * (step + 1) + i));
}

}  // namespace drivetrain::test
