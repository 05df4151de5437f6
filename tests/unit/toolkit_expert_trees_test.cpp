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
#include "kernels/product/group.h"

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
      EXPECT_TRUE(sum_over_choices(came, home).equal(wanted)) << E << " experts, " << P << " ranks";
      EXPECT_TRUE(weighted_sum(came, at::ones({T, P}), home).equal(wanted)) << E << " experts, " << P << " ranks";
    }
  }
}

TEST(ExpertTrees, the_backward_of_rows_is_their_sum) {
  constexpr int64_t T = 12, K = 5, D = 30;
  const SortedRows rows = sort_by_expert(drawn_choices(T, K, 8), 8);
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    at::Tensor x = drawn_numbers({T, D}, 1).to(type);
    const at::Tensor dy = drawn_numbers({T * K, D}, 2).to(type);
    x.set_requires_grad(true);
    rows_of_tokens(x, rows).backward(dy);
    EXPECT_TRUE(x.grad().equal(sum_over_choices(dy, rows))) << type;
  }
}

TEST(ExpertTrees, one_expert_chosen_twice_counts_twice) {
  const SortedRows rows = sort_by_expert(at::tensor(std::vector<int64_t>{2, 0, 2}, at::kLong).view({1, 3}), 3);
  const at::Tensor y = at::tensor(std::vector<float>{1, 10, 100}).view({3, 1});
  EXPECT_EQ(sum_over_choices(y, rows).item<float>(), 111);
}

// Added one after another, 1 and three times 2^-24 are 1.
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

// `earlier`: a micro-batch before it.
at::Tensor gradient_of(const Gradients& g, const at::Tensor& counts, at::ScalarType slot, bool earlier = false) {
  Param weight("w", Layout::whole({g.experts * g.dy.size(1), g.x.size(1)}), InitRule::zeros());
  weight.grad =
      at::full_like(at::zeros({g.experts * g.dy.size(1), g.x.size(1)}, slot), std::numeric_limits<double>::quiet_NaN());
  const at::Tensor all = counts.dim() == 2 ? counts.sum(1) : counts;
  if (earlier) accumulate_grouped_weight_grad(weight, g.dy, g.x, RowGroups(all));
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

// Rows of experts by part, some with none; one part has more than are summed at a time.
const std::vector<std::vector<int64_t>> kParts = {{3, 70, 0, 5, 11}, {0, 0, 0, 0, 0}, {0, 4, 0, 300, 1}};
constexpr int64_t kOut = 150, kIn = 40;

struct Parted {
  at::Tensor table;             // [E, P]
  Gradients whole;              // of all rows
  std::vector<Gradients> part;  // of each part's rows
};

Parted parted(int64_t parts, at::ScalarType type) {
  std::vector<at::Tensor> table;
  for (const auto& of_expert : kParts) table.push_back(at::tensor(of_expert, at::kLong).narrow(0, 0, parts));
  Parted all{at::stack(table), {}, {}};
  const int64_t rows = all.table.sum().item<int64_t>(), experts = static_cast<int64_t>(kParts.size());
  all.whole = {drawn_numbers({rows, kOut}, 3).to(type), drawn_numbers({rows, kIn}, 4).to(type), experts};
  for (int64_t p = 0; p < parts; ++p) {
    std::vector<at::Tensor> dy, x;
    int64_t first = 0;
    for (const auto& of_expert : kParts)
      for (int64_t q = 0; q < parts; first += of_expert[size_t(q++)])
        if (q == p) {
          dy.push_back(all.whole.dy.narrow(0, first, of_expert[size_t(q)]));
          x.push_back(all.whole.x.narrow(0, first, of_expert[size_t(q)]));
        }
    all.part.push_back({at::cat(dy), at::cat(x), experts});
  }
  return all;
}

// Where there is no kernel for it, a product of other rows may have other bits.
bool has_the_kernel() { return kernels::multiplies_groups(); }

TEST(ExpertTrees, gradients_of_parts_are_added_as_a_reduction_adds_ranks) {
  for (const int64_t P : {1, 2, 3, 4, 5}) {
    if (!has_the_kernel()) return;
    const Parted all = parted(P, at::kFloat);
    std::vector<at::Tensor> of_part;
    for (int64_t p = 0; p < P; ++p)
      of_part.push_back(gradient_of(all.part[size_t(p)], all.table.select(1, p).contiguous(), at::kFloat));
    EXPECT_TRUE(gradient_of(all.whole, all.table, at::kFloat).equal(tree_sum(of_part))) << P << " parts";
    EXPECT_TRUE(gradient_of(all.whole, all.table.t().contiguous().t(), at::kFloat).equal(tree_sum(of_part)));
  }
}

// In 16 bits, and beside an earlier micro-batch, the sums have another order on one rank, too.
TEST(ExpertTrees, parts_change_nothing_where_they_are_not_promised) {
  const auto expect_one_sum = [](const Parted& all, at::ScalarType slot, bool earlier) {
    const at::Tensor wanted = gradient_of(all.whole, all.table.sum(1), slot, earlier);
    EXPECT_TRUE(gradient_of(all.whole, all.table, slot, earlier).equal(wanted)) << slot;
  };
  expect_one_sum(parted(4, at::kBFloat16), at::kFloat, false);
  expect_one_sum(parted(4, at::kFloat), at::kBFloat16, false);
  expect_one_sum(parted(4, at::kDouble), at::kDouble, false);
  expect_one_sum(parted(4, at::kFloat), at::kFloat, true);
}

}  // namespace
}  // namespace drivetrain
