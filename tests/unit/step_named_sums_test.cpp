// Figures and loss terms that ranks report by names of their own, added up over all ranks.
#include <gtest/gtest.h>

#include <ATen/ops/scalar_tensor.h>

#include "step/loss_terms.h"
#include "support/mesh_ranks.h"

namespace drivetrain {
namespace {

using namespace test;

TEST(NamedSums, of_ranks_with_other_names_and_other_numbers_of_values) {
  const std::string longest(kLongestFigure, 'x');
  expect_on_ranks({{"dp", 3}}, [&](const Mesh& mesh) {
    const auto number = [](double x) { return at::scalar_tensor(x, at::kDouble); };
    const auto rank = static_cast<double>(mesh.rank());
    NamedSums mine;
    if (rank > 0) mine["load"] = {number(10 * rank), rank};
    if (rank == 1) mine[longest] = {number(0.5), 1}, mine["loss_terms.z"] = {number(3), 0};
    const auto all = sum_over_ranks(mine, 3, mesh.world(), at::kCPU);
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all.at("load").sum, 30);
    EXPECT_EQ(all.at("load").count, 3) << "values, not ranks: the mean is of all values";
    EXPECT_EQ(all.at(longest).sum, 0.5);
    EXPECT_EQ(all.at("loss_terms.z").sum, 3);
  });
}

TEST(NamedSums, of_one_rank_are_its_own) {
  expect_on_ranks({{"dp", 1}}, [](const Mesh& mesh) {
    const auto all = sum_over_ranks({{"a", {at::scalar_tensor(7, at::kDouble), 2}}}, 1, mesh.world(), at::kCPU);
    EXPECT_EQ(all.at("a").sum, 7);
    EXPECT_EQ(all.at("a").count, 2);
  });
}

}  // namespace
}  // namespace drivetrain
