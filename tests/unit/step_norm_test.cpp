// The gradient norm of a model whose gradients are cut over tp, dp and pipeline stages: the same bits on every rank and
// for every number of stages and shares, and the name of the first gradient that is no number.
#include "step/norm.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "state/initial_values.h"
#include "support/mesh_ranks.h"
#include "support/toy_shards.h"

namespace drivetrain {
namespace {

using namespace test;

// Gradients are the parameters' initial values; those of other memory first, to see that nothing of it is read.
void fill_gradients(const ToyShards& toy, const Mesh& mesh) {
  fill_initial_values(toy.chunks, kToySeed, mesh);
  for (const Trainables& chunk : toy.chunks)
    for (const Trainable& t : chunk) {
      at::Tensor(t.grad).copy_(t.value);
      if (t.device_grad.defined()) at::Tensor(t.device_grad).copy_(t.value), at::Tensor(t.grad).fill_(1e30);
    }
}

double sum_of_squares(GradNorm& norm, const ToyShards& toy) {
  const at::Tensor out = at::full({}, -1.0, at::TensorOptions(at::kDouble));
  norm.sum_of_squares(toy.chunks, out);
  return out.item<double>();
}

double whole_model() {
  double sum = 0;
  for (const ParamPtr& param : ToyShards::parameters()) {
    const at::Tensor values = ToyShards::whole(*param).to(at::kDouble);
    sum += values.mul(values).sum().item<double>();
  }
  return sum;
}

TEST(GradNorm, has_the_same_bits_whatever_the_stages_and_the_shares) {
  std::map<int64_t, std::set<double>> sums;  // by tp
  std::mutex mutex;
  for (const bool shared : {true, false}) {
    for (const auto& axes : toy_meshes()) {
      expect_on_ranks(axes, [&](const Mesh& mesh) {
        const ToyShards toy(mesh, shared);
        fill_gradients(toy, mesh);
        GradNorm norm(toy.chunks, toy.model, mesh, at::kCPU, toy.counted_elsewhere);
        for (int again = 0; again < 2; ++again) {
          const double sum = sum_of_squares(norm, toy);
          const std::lock_guard lock(mutex);
          sums[mesh.size("tp")].insert(sum);
        }
        EXPECT_EQ(norm.first_not_finite(), "");
      });
    }
  }
  ASSERT_EQ(sums.size(), 2u);
  for (const auto& [tp, values] : sums) {
    EXPECT_EQ(values.size(), 1u) << "tp " << tp;
    EXPECT_NEAR(*values.begin(), whole_model(), 1e-12 * whole_model()) << "tp " << tp;
  }
}

TEST(GradNorm, reads_the_gradient_where_it_was_summed) {
  expect_on_ranks({{"tp", 2}, {"dp", 2, 0, true}, {Schedule::kAxis, 2}}, [&](const Mesh& mesh) {
    FlatOptions options;
    options.host_state = true, options.chunk = 2048;
    const ToyShards toy(mesh, true, options);
    fill_gradients(toy, mesh);
    GradNorm norm(toy.chunks, toy.model, mesh, at::kCPU, toy.counted_elsewhere);
    EXPECT_NEAR(sum_of_squares(norm, toy), whole_model(), 1e-12 * whole_model());
  });
}

// Every rank, of every stage, names the same parameter: the first in the model's order.
TEST(GradNorm, every_rank_names_the_first_gradient_that_is_not_finite) {
  const std::vector<std::vector<std::string>> broken = {{"embedding"}, {"small"}, {"rows", "qkv"}, {"small", "wide"}};
  const std::vector<std::string> first = {"embedding", "small", "qkv", "wide"};
  for (size_t i = 0; i < broken.size(); ++i) {
    expect_on_ranks({{"tp", 2}, {"dp", 2, 0, true}, {Schedule::kAxis, 2}}, [&](const Mesh& mesh) {
      const ToyShards toy(mesh);
      fill_gradients(toy, mesh);
      for (const Trainables& chunk : toy.chunks)
        for (const Trainable& t : chunk)
          if (std::count(broken[i].begin(), broken[i].end(), t.param->name) && t.grad.numel() > 0)
            at::Tensor(t.grad).narrow(0, t.grad.numel() - 1, 1).fill_(std::numeric_limits<double>::infinity());
      GradNorm norm(toy.chunks, toy.model, mesh, at::kCPU, toy.counted_elsewhere);
      EXPECT_FALSE(std::isfinite(sum_of_squares(norm, toy)));
      EXPECT_EQ(norm.first_not_finite(), first[i]) << "rank " << mesh.rank();
    });
  }
}

TEST(GradNorm, of_nothing_is_zero) {
  const Mesh mesh({}, 0, 1, nullptr);
  GradNorm norm({}, {}, mesh, at::kCPU);
  const at::Tensor out = at::full({}, 5.0, at::TensorOptions(at::kDouble));
  norm.sum_of_squares({}, out);
  EXPECT_EQ(out.item<double>(), 0);
  EXPECT_EQ(norm.first_not_finite(), "");
}

TEST(GradNorm, refuses_parts_that_do_not_begin_on_a_block_and_parameters_it_does_not_know) {
  const Mesh mesh({}, 0, 1, nullptr);
  Trainable t;
  t.layout = Layout::whole({4000});
  t.param = std::make_shared<Param>("w", t.layout, InitRule::ones());
  t.layout.begin = 1000, t.layout.end = 4000, t.grad = at::zeros({3000});
  const auto error = [&](const std::vector<ParamPtr>& order) {
    try {
      GradNorm({{t}}, order, mesh, at::kCPU);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(error({t.param}).find("w: the flat range begins at 1000, not on a block of 1024"), std::string::npos);
  t.layout.begin = 1024;
  EXPECT_NE(error({}).find("w is updated and not in the model's list of parameters"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain
