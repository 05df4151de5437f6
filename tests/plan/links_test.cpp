// How long messages take: the usual algorithms' closed formulas, and what a host's border does to them.
#include <gtest/gtest.h>

#include "predict/links.h"

namespace drivetrain {
namespace {

Hardware machine() {
  Hardware h;
  h.name = "test", h.device = "cpu", h.ranks_per_host = 8, h.hosts = 128;
  h.host_link = {.gb_per_s = 200, .share = 0.5, .latency_us = 2};
  h.network = {.gb_per_s = 40, .share = 0.5, .latency_us = 10};
  return h;
}

constexpr double kBytes = 1e9;

TEST(Links, ring_algorithms_send_what_the_textbook_says) {
  for (const int64_t n : {2, 3, 8, 100}) {
    const double others = static_cast<double>(n - 1) / static_cast<double>(n);
    EXPECT_DOUBLE_EQ(sent_by_rank(Collective::all_reduce, kBytes, n).bytes, 2 * others * kBytes);
    EXPECT_DOUBLE_EQ(sent_by_rank(Collective::reduce_scatter, kBytes, n).bytes, others * kBytes);
    EXPECT_DOUBLE_EQ(sent_by_rank(Collective::all_gather, kBytes, n).bytes, others * kBytes);
    EXPECT_DOUBLE_EQ(sent_by_rank(Collective::all_to_all, kBytes, n).bytes, others * kBytes);
    EXPECT_DOUBLE_EQ(sent_by_rank(Collective::all_reduce, kBytes, n).hops, static_cast<double>(2 * (n - 1)));
  }
  EXPECT_DOUBLE_EQ(sent_by_rank(Collective::all_reduce, kBytes, 8, Algorithm::tree).hops, 6);
  EXPECT_EQ(sent_by_rank(Collective::all_reduce, kBytes, 1).bytes, 0);
}

TEST(Links, an_all_reduce_is_a_reduce_scatter_and_an_all_gather) {
  const Hardware h = machine();
  for (const RankGroup group : {RankGroup{8, 1}, RankGroup{64, 1}, RankGroup{16, 8}})
    EXPECT_NEAR(collective_seconds(Collective::all_reduce, kBytes, group, h),
                collective_seconds(Collective::reduce_scatter, kBytes, group, h) +
                    collective_seconds(Collective::all_gather, kBytes, group, h),
                1e-9);
}

TEST(Links, a_group_within_a_host_never_sees_the_network) {
  const GroupLink link = link_of({8, 1}, machine());
  EXPECT_FALSE(link.between_hosts);
  EXPECT_DOUBLE_EQ(link.bytes_per_s, 100e9);
  EXPECT_DOUBLE_EQ(link_of({4, 2}, machine()).bytes_per_s, 100e9);
}

TEST(Links, groups_that_leave_a_host_together_share_its_network) {
  EXPECT_DOUBLE_EQ(link_of({16, 1}, machine()).bytes_per_s, 20e9) << "one ring of all ranks of a host";
  EXPECT_DOUBLE_EQ(link_of({2, 8}, machine()).bytes_per_s, 20e9 / 8) << "eight groups with one rank each";
  EXPECT_DOUBLE_EQ(link_of({8, 2}, machine()).bytes_per_s, 20e9 / 2) << "two groups with four ranks each";
  EXPECT_TRUE(link_of({2, 8}, machine()).between_hosts);
}

TEST(Links, an_all_to_all_over_hosts_is_bound_by_each_ranks_part_of_the_network) {
  const Hardware h = machine();
  const double ring = ring_seconds(kBytes, 0, {16, 1}, h), direct = direct_seconds(kBytes, 0, {16, 1}, h);
  EXPECT_DOUBLE_EQ(ring, kBytes / 20e9);
  EXPECT_DOUBLE_EQ(direct, kBytes * 8 / 15 / (20e9 / 8)) << "8 of 15 others are elsewhere, 8 ranks share the network";
}

TEST(Links, small_sums_over_many_ranks_take_the_tree) {
  const Hardware h = machine();
  EXPECT_NEAR(collective_seconds(Collective::all_reduce, 8, {1024, 1}, h), 2 * 10 * 10e-6, 1e-7);
  EXPECT_NEAR(collective_seconds(Collective::all_reduce, 8, {2, 1}, h), 2 * 2e-6, 1e-9);
}

TEST(Links, more_bandwidth_is_never_slower_and_more_latency_never_faster) {
  for (const Collective c : {Collective::all_reduce, Collective::all_gather, Collective::all_to_all, Collective::send})
    for (const RankGroup group : {RankGroup{2, 1}, RankGroup{8, 1}, RankGroup{32, 1}, RankGroup{4, 8}, RankGroup{8, 2}})
      for (const double bytes : {8.0, 1e6, 1e10}) {
        const double before = collective_seconds(c, bytes, group, machine());
        Hardware faster = machine(), later = machine();
        faster.host_link.gb_per_s *= 2, faster.network.gb_per_s *= 2;
        later.host_link.latency_us *= 2, later.network.latency_us *= 2;
        EXPECT_LE(collective_seconds(c, bytes, group, faster), before);
        EXPECT_GE(collective_seconds(c, bytes, group, later), before);
      }
}

}  // namespace
}  // namespace drivetrain
