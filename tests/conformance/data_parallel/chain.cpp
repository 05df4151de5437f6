#include <drivetrain/testkit/data_parallel/chain.h>

#include <gtest/gtest.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include <drivetrain/error.h>

namespace drivetrain::test {

// Sizes below, at and above a block of the norm (1024), none a multiple of the number of ranks but by chance.
std::vector<ToyParam> toy_params(int64_t frozen_factor) {
  std::vector<ToyParam> list = {
      {"embed.weight", {37, 41}, 0},
      {"embed.bias", {5}, 0},
      {"block.0.weight", {70, 50}, 1},
      {"block.0.bias", {1}, 1},
      {"block.0.frozen", {33, 40}, 1, false},
      {"block.0.sometimes", {3, 7}, 1},
      {"block.0.some_rows", {1100}, 1},
      {"block.1.frozen", {1200}, 2, false},
      {"block.1.small", {8}, 2, false},
      {"head.weight", {64, 64}, 3},
      {"head.block", {1024}, 3},
      {"head.norm", {3}, 3},
  };
  for (ToyParam& param : list)
    if (!param.trainable) param.shape[0] *= frozen_factor;
  return list;
}

int64_t toy_number(uint64_t key, int64_t element, int64_t low, int64_t high) {
  uint64_t x = key + static_cast<uint64_t>(element) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
  x ^= x >> 32;
  return low + static_cast<int64_t>(x % static_cast<uint64_t>(high - low + 1));
}
float toy_initial(const std::string& name, int64_t element) {
  return static_cast<float>(toy_number(hash_name(name), element, -8, 8)) / 8;
}

// Whether a row's gradient reaches the parameter: one is left out by every rank in step 2, one by every other pair of
// rows.
static bool toy_uses(const std::string& name, int64_t step, int64_t row) {
  if (name == "block.0.sometimes") return step != 2;
  if (name == "block.0.some_rows") return row / 2 % 2 == 0;
  return true;
}

// Adds a row's gradient of a parameter with these values. `site`: which use of it, since the tied one has two.
// `integers`: b is 0.
template <class Sum>
static void add_toy_slopes(const std::string& name, int site, int64_t row, const std::vector<float>& values,
                           bool integers, Sum* sums) {
  const uint64_t key = hash_name(name) + static_cast<uint64_t>(row * 8 + site + 1) * 0xc2b2ae3d27d4eb4fu;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto element = static_cast<int64_t>(i);
    const auto a = static_cast<Sum>(toy_number(key, element, -2, 2)),
               b = static_cast<Sum>(integers ? 0 : toy_number(~key, element, 0, 1));
    sums[i] += a + b * static_cast<Sum>(values[i]);
  }
}

static std::vector<float> toy_initials(const ToyParam& p) {
  int64_t numel = 1;
  for (const int64_t size : p.shape) numel *= size;
  std::vector<float> values;
  for (int64_t i = 0; i < numel; ++i) values.push_back(toy_initial(p.name, i));
  return values;
}

static std::vector<float> rounded(const std::vector<float>& values, at::ScalarType type) {
  at::Tensor t = at::empty({static_cast<int64_t>(values.size())}, at::TensorOptions(at::kFloat));
  std::copy(values.begin(), values.end(), t.mutable_data_ptr<float>());
  t = t.to(type).to(at::kFloat);
  return {t.const_data_ptr<float>(), t.const_data_ptr<float>() + t.numel()};
}

// What a step depends on.
struct ToyForm {
  at::ScalarType working;
  bool integers;
  int64_t rows, frozen_factor;
  auto operator<=>(const ToyForm&) const = default;
};

static ToyStep make_toy_step(const ToyForm& form, int64_t step, const ToyStep* before) {
  const auto [working, integers, rows, frozen_factor] = form;
  ToyStep made;
  for (const ToyParam& p : toy_params(frozen_factor)) {
    std::vector<float>& values = made.masters[p.name] = before ? before->masters.at(p.name) : toy_initials(p);
    if (before && p.trainable)
      for (size_t i = 0; i < values.size(); ++i)
        values[i] -= ToyTruth::kRate * static_cast<float>(before->gradients.at(p.name)[i]);
    const std::vector<float>& seen = made.seen[p.name] = rounded(values, working);
    if (!p.trainable) continue;
    std::vector<double>& sum = made.gradients[p.name];
    sum.assign(values.size(), 0);
    for (int64_t row = (step - 1) * rows; row < step * rows; ++row)
      for (int site = 0; toy_uses(p.name, step, row) && site < (p.name == std::string(kTied) ? 2 : 1); ++site)
        add_toy_slopes(p.name, site, row, seen, integers, sum.data());
  }
  return made;
}

static const ToyStep& toy_step(const ToyForm& form, int64_t step) {
  static std::recursive_mutex mutex;
  static std::map<std::pair<ToyForm, int64_t>, ToyStep> all;
  const std::lock_guard lock(mutex);
  const auto key = std::make_pair(form, step);
  const auto found = all.find(key);
  if (found != all.end()) return found->second;
  const ToyStep* before = step > 1 ? &toy_step(form, step - 1) : nullptr;
  return all[key] = make_toy_step(form, step, before);
}

ToyTruth::ToyTruth(at::ScalarType working, bool integers, int64_t rows, int64_t frozen_factor)
    : integers(integers),
      rows(rows),
      frozen_factor(frozen_factor),
      working_(working),
      now_(&toy_step({working, integers, rows, frozen_factor}, 1)) {}

void ToyTruth::next() { now_ = &toy_step({working_, integers, rows, frozen_factor}, ++step_); }

Tensors ToyUnit::forward(const Tensors& x, StepContext& ctx, Saved&) {
  for (const ParamPtr& param : params_) check(*param, ctx, "forward");
  return x;
}

Tensors ToyUnit::backward(const Tensors& dy, StepContext& ctx, Saved&) {
  for (const ParamPtr& param : params_) {
    check(*param, ctx, "backward");
    if (param->trainable)
      add_gradient(*param, ctx);
    else
      EXPECT_FALSE(param->grad.defined()) << param->name << " is frozen and has a gradient slot";
  }
  return dy;
}

void ToyUnit::check(const Param& param, const StepContext& ctx, const char* direction) const {
  const std::string where =
      concat(param.name, " of ", name(), ", ", direction, " of micro-batch ", ctx.visit().micro, ", step ", ctx.step());
  ASSERT_EQ(param.tensor.sizes(), at::IntArrayRef(param.layout.global_shape)) << where;
  const at::Tensor seen = param.tensor.detach().to(at::kFloat).contiguous();
  const std::vector<float>& wanted = truth_.now().seen.at(param.name);
  const float* found = seen.const_data_ptr<float>();
  const auto [bad, right] = std::mismatch(found, found + seen.numel(), wanted.begin());
  EXPECT_EQ(bad, found + seen.numel()) << where << ", element " << bad - found << " is " << *bad << ", wanted "
                                       << *right;
}

void ToyUnit::add_gradient(Param& param, const StepContext& ctx) const {
  const int site = name() == "head" && param.name == kTied ? 1 : 0;
  const std::vector<float>& values = truth_.now().seen.at(param.name);
  at::Tensor gradient = at::zeros(param.layout.global_shape, at::TensorOptions(at::kFloat));
  float* sums = gradient.mutable_data_ptr<float>();
  bool used = false;
  const int64_t first = ctx.batch().first_sample, rows = ctx.batch().tokens_BS.size(0);
  for (int64_t row = first; row < first + rows; ++row) {
    if (!toy_uses(param.name, ctx.step(), row)) continue;
    used = true;
    add_toy_slopes(param.name, site, row, values, truth_.integers, sums);
  }
  if (used) accumulate_grad(param, gradient);
}

UnitList toy_units(ToyTruth& truth) {
  std::vector<std::vector<ParamPtr>> owned(4);
  for (const ToyParam& p : toy_params(truth.frozen_factor)) {
    owned[static_cast<size_t>(p.unit)].push_back(
        std::make_shared<Param>(p.name, Layout::whole(p.shape), InitRule::ones()));
    owned[static_cast<size_t>(p.unit)].back()->trainable = p.trainable;
  }
  owned[3].push_back(owned[0][0]);
  UnitList list;
  const char* names[] = {"embed", "block.0", "block.1", "head"};
  for (size_t u = 0; u < owned.size(); ++u) list.units.push_back(std::make_shared<ToyUnit>(names[u], owned[u], truth));
  return list;
}

}  // namespace drivetrain::test
