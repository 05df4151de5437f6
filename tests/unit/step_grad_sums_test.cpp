// Gradients that are partial sums over tp, and copies of a parameter on two pipeline stages, get their sums; others
// stay as they are.
#include "step/grad_sums.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include "state/initial_values.h"
#include "support/mesh_ranks.h"
#include "support/toy_shards.h"

namespace drivetrain {
namespace {

using namespace test;

at::Tensor made(const Trainable& t) { return t.device_grad.defined() ? t.device_grad : t.grad; }

std::map<std::string, GroupPtr> ties(const ToyShards& toy, const Mesh& mesh) {
  const int64_t stages = mesh.size(Schedule::kAxis), stage = mesh.index(Schedule::kAxis);
  if (stages == 1 || (stage > 0 && stage < stages - 1)) return {};
  return {{toy.model[0]->name, mesh.subgroup(Schedule::kAxis, {0, stages - 1}, "tied embedding")}};
}

// The gradient of each rank is the parameter's initial values times a small number of its own; sums of those are exact
// enough to be compared as products.
void check_sums(const Mesh& mesh, const ToyShards& toy, double tolerance) {
  fill_initial_values(toy.chunks, kToySeed, mesh);
  const int64_t tp = mesh.size("tp"), stages = mesh.size(Schedule::kAxis);
  const double own = static_cast<double>(1 + mesh.index("tp") + 2 * mesh.index(Schedule::kAxis));
  for (const Trainables& chunk : toy.chunks)
    for (const Trainable& t : chunk) at::Tensor(made(t)).copy_(t.value.mul(own));
  GradSums sums(toy.chunks, mesh, ties(toy, mesh));
  sums.run();
  for (const Trainables& chunk : toy.chunks) {
    for (const Trainable& t : chunk) {
      double factor = own;
      if (t.layout.partial_over.size() == 1 && tp == 2)
        factor = 3 + 4 * static_cast<double>(mesh.index(Schedule::kAxis));
      if (t.param->name == "embedding" && stages > 1)
        factor = 2 * static_cast<double>(1 + mesh.index("tp")) + 2 * static_cast<double>(stages - 1);
      const at::Tensor wanted = t.value.to(at::kFloat).mul(factor);
      EXPECT_LE(t.grad.numel() == 0 ? 0 : made(t).to(at::kFloat).sub(wanted).abs().max().item<double>(), tolerance)
          << t.param->name << " on rank " << mesh.rank();
      const bool summed = factor != own;
      if (t.device_grad.defined() && summed) {
        EXPECT_TRUE(at::equal(t.grad, t.device_grad)) << t.param->name;
      }
    }
  }
}

TEST(GradSums, partial_sums_and_tied_copies_are_summed_and_nothing_else) {
  for (const bool shared : {true, false})
    for (const auto& axes : toy_meshes())
      expect_on_ranks(axes, [&](const Mesh& mesh) { check_sums(mesh, ToyShards(mesh, shared), 1e-5); });
}

TEST(GradSums, of_narrow_gradients_are_rounded_once) {
  FlatOptions options;
  options.dtypes = {.param = at::kBFloat16, .grad = at::kBFloat16};
  expect_on_ranks({{"tp", 2}, {"dp", 2, 0, true}, {Schedule::kAxis, 2}},
                  [&](const Mesh& mesh) { check_sums(mesh, ToyShards(mesh, true, options), 0.15); });
}

TEST(GradSums, copies_on_the_host_follow) {
  FlatOptions options;
  options.host_state = true, options.chunk = 1024;
  expect_on_ranks({{"tp", 2}, {"dp", 2, 0, true}, {Schedule::kAxis, 2}},
                  [&](const Mesh& mesh) { check_sums(mesh, ToyShards(mesh, true, options), 1e-5); });
}

// What units compute with and what stages update stays equal to the bit: copies get the same gradient.
TEST(GradSums, all_copies_get_the_same_bits) {
  std::map<std::string, at::Tensor> seen;
  std::mutex mutex;
  expect_on_ranks({{"tp", 2}, {Schedule::kAxis, 2}}, [&](const Mesh& mesh) {
    const ToyShards toy(mesh);
    for (const Trainables& chunk : toy.chunks)
      for (const Trainable& t : chunk) {
        at::Tensor grad = t.grad;
        fill_normal(grad, static_cast<uint64_t>(mesh.rank()), t.param->name, 0, 1);
      }
    GradSums(toy.chunks, mesh, ties(toy, mesh)).run();
    for (const Trainables& chunk : toy.chunks)
      for (const Trainable& t : chunk) {
        const bool copies = t.param->name == "embedding" || !t.layout.partial_over.empty();
        if (!copies) continue;
        const std::string key = concat(t.param->name, t.param->name == "embedding" ? mesh.index("tp") : -1);
        const std::lock_guard lock(mutex);
        const auto [known, first] = seen.emplace(key, t.grad.clone());
        if (!first) {
          EXPECT_TRUE(at::equal(known->second, t.grad)) << key;
        }
      }
  });
}

}  // namespace
}  // namespace drivetrain
