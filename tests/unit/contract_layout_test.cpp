#include <drivetrain/error.h>
#include <drivetrain/layout.h>
#include <drivetrain/mesh.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>

namespace drivetrain {
namespace {

using Shape = std::vector<int64_t>;

Mesh mesh_of(int64_t rank) { return Mesh({{"tp", 2}, {"dp", 3}, {"ep", 2}}, rank, 12, nullptr); }

TEST(MeshGroups, positions_are_each_given_once_and_exist) {
  const auto said = [](const std::vector<int64_t>& positions) -> std::string {
    try {
      mesh_of(0).subgroup("dp", positions, "mine");
    } catch (const Error& e) {
      return e.code() == ErrorCode::plugin ? e.what() : "another code";
    }
    return "";
  };
  EXPECT_EQ(said({0, 1, 0}), "group \"mine\" is to have a position of the axis dp twice; wanted each once");
  for (const int64_t none : {3, -1})
    EXPECT_EQ(said({0, none}),
              concat("group \"mine\" is to have position ", none, " of the axis dp, which has positions 0 to 2"));
  EXPECT_EQ(said({0}), "");
}

TEST(LayoutRanges, nothing_split_is_one_range_of_everything) {
  const Layout layout = Layout::whole({5, 7});
  EXPECT_EQ(layout.global_numel(), 35);
  EXPECT_EQ(layout.local_shape(mesh_of(3)), (Shape{5, 7}));
  ASSERT_EQ(layout.ranges(1, mesh_of(3)).size(), 1u);
  EXPECT_EQ(layout.ranges(1, mesh_of(3))[0].count, 7);
  EXPECT_EQ(Layout::whole({}).local_numel(mesh_of(0)), 1);
}

TEST(LayoutRanges, each_fused_block_is_split_by_itself) {
  Layout layout = Layout::whole({8, 3});
  layout.dims = {{{"tp"}, {4, 2, 2}}, {}};
  const auto ranges = layout.ranges(0, mesh_of(1));  // tp 1
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges[0].first, 2);
  EXPECT_EQ(ranges[0].count, 2);
  EXPECT_EQ(ranges[1].first, 5);
  EXPECT_EQ(ranges[2].first, 7);
  EXPECT_EQ(layout.local_shape(mesh_of(1)), (Shape{4, 3}));
}

TEST(LayoutRanges, several_axes_count_the_outermost_slowest_and_cover_every_row_once) {
  Layout layout = Layout::whole({8});
  layout.dims = {{{"ep", "tp"}, {}}};
  std::set<int64_t> rows;
  for (const int64_t ep : {0, 1}) {
    for (const int64_t tp : {0, 1}) {
      const auto ranges = layout.ranges(0, mesh_of(tp + 6 * ep));
      EXPECT_EQ(ranges[0].first, 2 * (2 * ep + tp));
      for (int64_t i = 0; i < ranges[0].count; ++i) rows.insert(ranges[0].first + i);
    }
  }
  EXPECT_EQ(rows.size(), 8u);
}

TEST(LayoutRanges, an_axis_that_is_not_there_splits_nothing) {
  Layout layout = Layout::whole({7});
  layout.dims = {{{"cp"}, {}}};
  EXPECT_EQ(layout.local_shape(mesh_of(0)), (Shape{7}));
}

TEST(LayoutRanges, rows_that_do_not_divide_and_blocks_that_do_not_add_up_are_refused) {
  Layout layout = Layout::whole({7});
  layout.dims = {{{"tp"}, {}}};
  EXPECT_THROW(layout.local_shape(mesh_of(0)), Error);
  layout.dims = {{{"tp"}, {4, 2}}};
  EXPECT_THROW(layout.ranges(0, mesh_of(0)), Error);
}

TEST(LayoutRanges, padded_rows_give_every_rank_one_size_and_stand_last) {
  Layout layout = Layout::whole({7, 3});
  for (const int64_t padded_to : {8, 7}) {  // 7 is not shared evenly: pieces are rounded up
    layout.dims = {{{"ep", "tp"}, {}, padded_to}, {}};
    for (const auto& [rank, first, count] : {std::tuple{0, 0, 2}, {1, 2, 2}, {6, 4, 2}, {7, 6, 1}}) {
      const Mesh mesh = mesh_of(rank);
      ASSERT_EQ(layout.ranges(0, mesh).size(), 1u);
      EXPECT_EQ(layout.ranges(0, mesh)[0].first, first) << rank;
      EXPECT_EQ(layout.ranges(0, mesh)[0].count, count) << rank;
      EXPECT_EQ(layout.local_shape(mesh), (Shape{2, 3}));
    }
  }
  EXPECT_EQ(layout.global_numel(), 21);
}

TEST(LayoutRanges, late_ranks_may_hold_nothing_but_padding) {
  Layout layout = Layout::whole({5});
  layout.dims = {{{"ep", "tp"}, {}, 16}};
  EXPECT_EQ(layout.ranges(0, mesh_of(1))[0].count, 1);
  for (const int64_t rank : {6, 7}) {
    EXPECT_EQ(layout.ranges(0, mesh_of(rank))[0].first, 5);
    EXPECT_EQ(layout.ranges(0, mesh_of(rank))[0].count, 0);
    EXPECT_EQ(layout.local_numel(mesh_of(rank)), 4);
  }
}

TEST(LayoutRanges, padding_to_less_and_padding_of_fused_blocks_are_refused) {
  const auto error = [](const Layout& layout) {
    try {
      layout.local_shape(mesh_of(0));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  Layout layout = Layout::whole({8});
  layout.dims = {{{"tp"}, {}, 6}};
  EXPECT_NE(error(layout).find("dimension 0 of 8 rows cannot be padded to 6, which is less"), std::string::npos);
  layout.dims = {{{"tp"}, {4, 4}, 12}};
  EXPECT_NE(error(layout).find("dimension 0 has 2 fused blocks and is padded"), std::string::npos);
}

}  // namespace
}  // namespace drivetrain
