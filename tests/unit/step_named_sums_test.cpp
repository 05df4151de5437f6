// Figures and loss terms that ranks report by names of their own, added up over all ranks.
#include <gtest/gtest.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include <drivetrain/testkit/kit/passing_group.h>
#include "step/loss_terms.h"
#include "support/mesh_ranks.h"

namespace drivetrain {
namespace {

using namespace test;

at::Tensor number(double x) { return at::scalar_tensor(x, at::kDouble); }

struct SentGroup : PassingGroup {
  using PassingGroup::PassingGroup;
  WorkPtr all_gather(at::Tensor out, at::Tensor in) override {
    sent = in.numel();
    return PassingGroup::all_gather(out, in);
  }
  int64_t sent = 0;  // numbers from one rank by the last call
};

struct NamedSumsOfRanks {
  explicit NamedSumsOfRanks(const Mesh& mesh)
      : mesh(mesh), group(std::make_shared<SentGroup>(mesh.world())), sums(group, at::kCPU) {}
  // As Finish does: all ranks' digests and the largest number of names come with other figures.
  std::map<std::string, SumOverRanks> add(const NamedSums& mine) {
    at::Tensor all = at::empty({2 * mesh.world()->size()}, at::TensorOptions(at::kDouble));
    const at::Tensor own = at::stack({number(SumsOverRanks::digest(mine)), number(static_cast<double>(mine.size()))});
    mesh.world()->all_gather(all, own)->wait();
    std::vector<double> digests;
    double most = 0;
    for (int64_t rank = 0; rank < mesh.world()->size(); ++rank)
      digests.push_back(all[2 * rank].item<double>()), most = std::max(most, all[2 * rank + 1].item<double>());
    return sums.add(mine, static_cast<int64_t>(most), digests);
  }
  const Mesh& mesh;
  const std::shared_ptr<SentGroup> group;
  SumsOverRanks sums;
};

// Every other step has the names of the one before: numbers alone travel then.
TEST(NamedSums, of_ranks_with_other_names_and_other_numbers_of_values) {
  const std::string longest(kLongestFigure, 'x');
  expect_on_ranks({{"dp", 3}}, [&](const Mesh& mesh) {
    const auto rank = static_cast<double>(mesh.rank());
    NamedSumsOfRanks ranks(mesh);
    for (const double step : {1, 2, 3, 4}) {
      NamedSums mine;
      if (rank > 0) mine["load"] = {number(10 * rank * step), rank};
      if (rank == 1) mine[longest] = {number(step), 1}, mine["loss_terms.z"] = {number(3), 0};
      if (rank == 2 && step > 2) mine["late"] = {number(7), 1};
      const auto all = ranks.add(mine);
      ASSERT_EQ(all.size(), step > 2 ? 4u : 3u);
      const bool known = step == 2 || step == 4;
      EXPECT_EQ(ranks.group->sent, 3 * (known ? 2 : 12)) << "a sum and a count, and names of 80 bytes";
      EXPECT_EQ(all.at("load").sum, 30 * step);
      EXPECT_EQ(all.at("load").count, 3) << "values, not ranks: the mean is of all values";
      EXPECT_EQ(all.at(longest).sum, step);
      EXPECT_EQ(all.at("loss_terms.z").sum, 3);
      if (step > 2) EXPECT_EQ(all.at("late").sum, 7);
    }
  });
}

TEST(NamedSums, of_one_rank_are_its_own) {
  expect_on_ranks({{"dp", 1}}, [](const Mesh& mesh) {
    const auto all = NamedSumsOfRanks(mesh).add({{"a", {number(7), 2}}});
    EXPECT_EQ(all.at("a").sum, 7);
    EXPECT_EQ(all.at("a").count, 2);
  });
}

TEST(NamedSums, digests_tell_names_apart_however_they_are_cut) {
  const auto digest = [](const std::vector<std::string>& names) {
    NamedSums sums;
    for (const std::string& name : names) sums[name] = {};
    return SumsOverRanks::digest(sums);
  };
  EXPECT_EQ(digest({"a", "b"}), digest({"b", "a"}));
  EXPECT_NE(digest({"a", "b"}), digest({"ab"}));
  EXPECT_NE(digest({"a"}), digest({"b"}));
  EXPECT_NE(digest({"a"}), digest({}));
}

}  // namespace
}  // namespace drivetrain
