// Sums that ranks share: those over a token's experts and those over an expert's rows have, in parts of which each rank
// has one, the bits of the whole.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include <drivetrain/random.h>
#include <drivetrain/toolkit/layers/grouped_product.h>
#include <drivetrain/toolkit/layers/mixture.h>

#include "kernels/collective/tree_sum.h"

namespace drivetrain {
namespace {

struct Draw {
  uint64_t state;
  uint64_t operator()() { return state = state * 6364136223846793005u + 1442695040888963407u, state >> 40; }
};

at::Tensor drawn_numbers(at::IntArrayRef sizes, uint64_t seed) {
  at::Tensor t = at::zeros(sizes, at::kFloat);
  Draw draw{seed};
  for (int64_t i = 0; i < t.numel(); ++i)
    t.mutable_data_ptr<float>()[i] = static_cast<float>(draw()) / (1 << 24) * 2 - 1;
  return t;
}

// Different experts for each token, some of nobody, in no order.
at::Tensor drawn_choices(int64_t tokens, int64_t chosen, int64_t experts) {
  at::Tensor ids = at::full_like(at::zeros({tokens, chosen}, at::kLong), -1);
  Draw draw{7};
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t k = 0; k < chosen; ++k) {
      const int64_t id = static_cast<int64_t>(draw() % uint64_t(experts));
      bool taken = draw() % 8 == 0;
      for (int64_t i = 0; i < k; ++i) taken |= ids[t][i].item<int64_t>() == id;
      if (!taken) ids[t][k] = id;
    }
  return ids;
}

at::Tensor ids_where(const at::Tensor& condition, const at::Tensor& ids) {
  return at::where(condition, ids, at::full_like(ids, -1));
}

TEST(ExpertTrees, sums_of_ranks_with_parts_of_the_experts_are_those_of_one) {
  constexpr int64_t T = 40, K = 9, D = 700;
  for (const int64_t E : {16, 24, 40}) {
    const at::Tensor ids = drawn_choices(T, K, E), weights = drawn_numbers({T, K}, 1);
    const SortedRows all = sort_by_expert(ids, E);
    const at::Tensor y = drawn_numbers({T * K, D}, 2), wanted = weighted_sum(y, weights, all);
    for (const int64_t P : {2, 4, 8}) {
      const int64_t own = E / P;
      std::vector<at::Tensor> of_rank, sums;
      for (int64_t p = 0; p < P; ++p) {
        const at::Tensor here = ids.div(own, "floor").eq(p);
        const SortedRows rows = sort_by_expert(ids_where(here, ids - p * own), own);
        const at::Tensor places = at::index_select(all.place_TK.view({-1}), 0, rows.order_R);
        of_rank.push_back(here.any(1));
        sums.push_back(weighted_sum(at::index_select(y, 0, places), weights, rows));
      }
      const at::Tensor ranks = at::tensor(std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}, at::kLong).narrow(0, 0, P);
      const SortedRows home = sort_by_expert(ids_where(at::stack(of_rank, 1), ranks.expand({T, P})), P);
      const at::Tensor came = at::index_select(at::stack(sums, 1).view({T * P, D}), 0, home.order_R);
      EXPECT_TRUE(weighted_sum(came, at::ones({T, P}), home).equal(wanted)) << E << " experts, " << P << " ranks";
    }
  }
}

// Of token 0 to 3 the sums of rows 1, 2, 3, ... in another order would be others.
TEST(ExpertTrees, halves_are_added_before_their_sum) {
  const at::Tensor ids = at::tensor(std::vector<int64_t>{3, 0, 2, 1}, at::kLong).view({1, 4});
  const SortedRows rows = sort_by_expert(ids, 4);
  const at::Tensor y = at::tensor(std::vector<float>{1, 0x1p-24f, 0x1p-24f, 0x1p-24f}).view({4, 1});
  EXPECT_EQ(weighted_sum(y, at::ones({1, 4}), rows).item<float>(), 1 + 0x1p-23f);  // (1 + e) + (e + e), not 1
}

struct Gradients {
  at::Tensor dy, x;
  int64_t experts;
};

at::Tensor gradient_of(const Gradients& g, const at::Tensor& counts, at::ScalarType slot) {
  Param weight("w", Layout::whole({g.experts * g.dy.size(1), g.x.size(1)}), InitRule::zeros());
  weight.grad =
      at::full_like(at::zeros({g.experts * g.dy.size(1), g.x.size(1)}, slot), std::numeric_limits<double>::quiet_NaN());
  accumulate_grouped_weight_grad(weight, g.dy, g.x, RowGroups(counts));
  return weight.grad;
}

at::Tensor tree_sum(const std::vector<at::Tensor>& list) {
  std::vector<const void*> sources;
  for (const at::Tensor& t : list) sources.push_back(t.const_data_ptr());
  const at::Tensor out = at::empty_like(list[0]);
  kernels::TreeSum op;
  op.sources = sources.data(), op.out = out.mutable_data_ptr(), op.ranks = static_cast<int64_t>(list.size());
  kernels::tree_sum_cpu(op, 0, out.numel());
  return out;
}

TEST(ExpertTrees, gradients_of_parts_are_added_as_a_reduction_adds_ranks) {
  const std::vector<std::vector<int64_t>> counts = {{3, 70, 0, 5, 11}, {0, 0, 0, 0, 0}, {0, 4, 0, 300, 1}};
  constexpr int64_t kOut = 150, kIn = 40;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const int64_t P : {1, 2, 3, 4, 5}) {
      std::vector<at::Tensor> of_part, counts_EP;
      int64_t all = 0;
      for (const auto& of_expert : counts) {
        counts_EP.push_back(at::tensor(of_expert, at::kLong).narrow(0, 0, P));
        for (int64_t p = 0; p < P; ++p) all += of_expert[size_t(p)];
      }
      const Gradients whole{drawn_numbers({all, kOut}, 3).to(type), drawn_numbers({all, kIn}, 4).to(type), 3};
      for (int64_t p = 0; p < P; ++p) {
        Gradients part{{}, {}, 3};
        std::vector<at::Tensor> dy, x;
        std::vector<int64_t> rows;
        int64_t first = 0;
        for (const auto& of_expert : counts)
          for (int64_t q = 0; q < P; first += of_expert[size_t(q++)]) {
            if (q != p) continue;
            rows.push_back(of_expert[size_t(p)]);
            dy.push_back(whole.dy.narrow(0, first, rows.back())), x.push_back(whole.x.narrow(0, first, rows.back()));
          }
        part.dy = at::cat(dy), part.x = at::cat(x);
        of_part.push_back(gradient_of(part, at::tensor(rows, at::kLong), at::kFloat));
      }
      const at::Tensor wanted = tree_sum(of_part), table = at::stack(counts_EP);
      EXPECT_TRUE(gradient_of(whole, table, at::kFloat).equal(wanted)) << P << " parts of " << type;
      EXPECT_TRUE(gradient_of(whole, table, at::kBFloat16).equal(wanted.to(at::kBFloat16))) << P << " parts, " << type;
    }
}

}  // namespace
}  // namespace drivetrain
