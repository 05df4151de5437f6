// Which hosts have the ranks after some were lost.
#include <gtest/gtest.h>

#include <numeric>

#include "launch/host_pool.h"

namespace drivetrain::program {
namespace {

Host host(const std::string& name, size_t slots) {
  Host one{name, std::vector<int>(slots)};
  std::iota(one.slots.begin(), one.slots.end(), 0);
  return one;
}
std::string text_of(const HostPool& pool) {
  std::string text;
  for (const Host& one : pool.hosts()) text += one.name + std::to_string(one.slots.size());
  return text;
}

TEST(HostPool, a_spare_with_room_takes_the_same_ranks) {
  HostPool pool({host("a", 2), host("b", 4)}, {host("small", 3), host("large", 8), host("late", 4)});
  EXPECT_EQ(pool.replace("b"), "large");
  EXPECT_EQ(text_of(pool), "a2large4");
  EXPECT_EQ(pool.replace("a"), "small");
  EXPECT_EQ(text_of(pool), "small2large4");
  EXPECT_EQ(pool.replace("large"), "late");
  EXPECT_EQ(pool.replace("late"), "");
  pool.stands_by(host("b", 4));
  EXPECT_EQ(pool.replace("late"), "b");
}

TEST(HostPool, places_are_of_hosts_whatever_their_rank) {
  HostPool pool({host("a", 2), host("b", 2)}, {host("c", 2)});
  const int of_b = pool.place_of_rank(2);
  EXPECT_NE(of_b, pool.place_of_rank(0));
  EXPECT_NE(of_b, pool.place_of_rank(3));
  EXPECT_EQ(pool.host_of_rank(3), "b");
  pool.replace("b");
  EXPECT_NE(of_b, pool.place_of_rank(2));
  pool.stands_by(host("b", 2));
  pool.replace("a");
  EXPECT_EQ(of_b, pool.place_of_rank(0));
}

TEST(HostPool, a_host_may_have_more_slots_than_ranks) {
  HostPool pool({host("a", 4)}, {});
  EXPECT_EQ(pool.hosts_of_ranks(3).front().slots, (std::vector<int>{0, 1, 2}));
  pool.leave_out_slot_of(1);
  EXPECT_EQ(pool.hosts_of_ranks(3).front().slots, (std::vector<int>{0, 2, 3}));
  EXPECT_EQ(pool.hosts_of_ranks(2).front().slots, (std::vector<int>{0, 2}));
  EXPECT_EQ(pool.place_of_rank(1), 2);
  HostPool two({host("a", 2), host("b", 2)}, {});
  EXPECT_EQ(two.hosts_of_ranks(2).size(), 1u);
  EXPECT_EQ(two.hosts_of_ranks(3).back().slots, std::vector<int>{0});
}

TEST(HostPool, without_a_host_or_a_slot_the_ranks_move_together) {
  HostPool pool({host("a", 2), host("b", 3), host("c", 1)}, {});
  EXPECT_EQ(pool.ranks_without({"b"}), 3);
  pool.leave_out_slot_of(3);
  EXPECT_EQ(text_of(pool), "a2b2c1");
  EXPECT_EQ(pool.hosts()[1].slots, (std::vector<int>{0, 2}));
  pool.leave_out_slot_of(4);
  EXPECT_EQ(text_of(pool), "a2b2");
  pool.leave_out({"a"});
  pool.keep_ranks(1);
  EXPECT_EQ(text_of(pool), "b1");
}

TEST(HostPool, with_whole_hosts_only_those_that_are_not_needed_stand_by) {
  HostPool pool({host("a", 2), host("b", 3), host("c", 1), host("d", 2)}, {});
  EXPECT_EQ(pool.whole_hosts_without({"b"}, 1), (std::vector<int>{5, 3, 2}));
  EXPECT_EQ(pool.whole_hosts_without({"a", "b"}, 2), (std::vector<int>{3}));
  EXPECT_TRUE(pool.whole_hosts_without({"a", "b"}, 3).empty());
  pool.leave_out({"b"});
  pool.keep_ranks(3);
  EXPECT_EQ(text_of(pool), "a2c1");
  EXPECT_FALSE(pool.has("d"));
  EXPECT_EQ(pool.replace("c"), "d");
}

}  // namespace
}  // namespace drivetrain::program
