// Who writes what of a save: every part once, by a rank that holds it, and no rank much more than another.
#include "checkpoint/writers.h"

#include <gtest/gtest.h>

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <mutex>
#include <random>
#include <set>

#include <drivetrain/error.h>

#include <drivetrain/testkit/kit/rank_threads.h>

namespace drivetrain::test {
namespace {

using Parts = std::vector<HeldPart>;

HeldPart part_of(const std::string& name, std::vector<int64_t> shape, const StateBox& box) {
  return {name, std::move(shape), box, at::zeros({box.rows, box.columns})};
}
HeldPart whole(const std::string& name, int64_t rows) { return part_of(name, {rows, 4}, {0, 0, rows, 4}); }

std::string key_of(const HeldPart& p) {
  return concat(p.name, " ", p.box.row, " ", p.box.column, " ", p.box.rows, " ", p.box.columns);
}

std::vector<int64_t> loads(const std::vector<Parts>& parts, const std::vector<std::vector<bool>>& writes) {
  std::vector<int64_t> bytes(parts.size(), 0);
  for (size_t rank = 0; rank < parts.size(); ++rank)
    for (size_t i = 0; i < parts[rank].size(); ++i)
      if (writes[rank][i]) bytes[rank] += static_cast<int64_t>(parts[rank][i].bytes());
  return bytes;
}
std::vector<int64_t> loads(const std::vector<Parts>& parts) { return loads(parts, choose_writers(parts)); }

int64_t spread(const std::vector<int64_t>& bytes) {
  const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
  return *most - *least;
}

void expect_each_part_once(const std::vector<Parts>& parts) {
  const auto writes = choose_writers(parts);
  ASSERT_EQ(writes.size(), parts.size());
  std::map<std::string, int> times;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    ASSERT_EQ(writes[rank].size(), parts[rank].size());
    for (size_t i = 0; i < parts[rank].size(); ++i) times[key_of(parts[rank][i])] += writes[rank][i];
  }
  for (const auto& [key, count] : times) EXPECT_EQ(count, 1) << key;
}

// Tensors whole or cut by rows into two, each piece on any ranks but none.
std::vector<Parts> random_parts(std::mt19937_64& random, size_t ranks) {
  std::vector<Parts> parts(ranks);
  const auto give = [&](const HeldPart& part) {
    const uint64_t who = 1 + random() % ((1u << ranks) - 1);
    for (size_t rank = 0; rank < ranks; ++rank)
      if (who >> rank & 1) parts[rank].push_back(part);
  };
  for (int i = 0; i < 20; ++i) {
    const std::string name = concat("t", i);
    const int64_t rows = 2 + static_cast<int64_t>(random() % 60), cut = 1 + static_cast<int64_t>(random() % (rows - 1));
    if (random() % 2) {
      give(whole(name, rows));
    } else {
      give(part_of(name, {rows, 4}, {0, 0, cut, 4}));
      give(part_of(name, {rows, 4}, {cut, 0, rows - cut, 4}));
    }
  }
  return parts;
}

TEST(Writers, every_part_is_written_once_by_a_rank_that_holds_it) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) expect_each_part_once(random_parts(random, 1 + random() % 8));
}

// As under plain data parallelism.
TEST(Writers, copies_on_all_ranks_are_shared_out_evenly) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 100; ++round) {
    Parts all;
    int64_t largest = 0;
    for (int i = 0; i < 15; ++i) all.push_back(whole(concat("t", i), 1 + static_cast<int64_t>(random() % 200)));
    for (const HeldPart& part : all) largest = std::max(largest, static_cast<int64_t>(part.bytes()));
    const std::vector<Parts> parts(2 + random() % 7, all);
    EXPECT_LE(spread(loads(parts)), largest);
  }
  const Parts layers = {whole("a", 8), whole("b", 8), whole("c", 8), whole("d", 8)};
  EXPECT_EQ(spread(loads({layers, layers})), 0);
}

// Pipeline stages with a tied embedding, ranks with shards of their own: what has one holder counts first, wherever it
// stands in the lists.
TEST(Writers, copies_go_to_ranks_that_have_less_of_their_own) {
  const HeldPart shared = whole("shared", 50), heavy = whole("heavy", 100), light = whole("light", 10);
  for (const Parts& first : {Parts{shared, heavy}, Parts{heavy, shared}})
    for (const Parts& second : {Parts{shared, light}, Parts{light, shared}}) {
      EXPECT_EQ(loads({first, second}), (std::vector<int64_t>{1600, 960}));
      EXPECT_EQ(loads({second, first}), (std::vector<int64_t>{960, 1600}));
    }
}

// A small one before a large one would leave a rank with both.
TEST(Writers, large_copies_are_given_away_before_small_ones) {
  const Parts all = {whole("a", 10), whole("b", 10), whole("c", 20)};
  EXPECT_EQ(spread(loads({all, all})), 0);
}

TEST(Writers, the_same_parts_give_the_same_writers) {
  std::mt19937_64 random(5);
  const auto parts = random_parts(random, 5);
  EXPECT_EQ(choose_writers(parts), choose_writers(parts));
}

TEST(Writers, a_rank_may_hold_nothing) {
  EXPECT_EQ(loads({{whole("a", 3)}, {}, {}}), (std::vector<int64_t>{48, 0, 0}));
  EXPECT_EQ(choose_writers(std::vector<Parts>{{}, {}}), std::vector<std::vector<bool>>(2));
}

TEST(Writers, what_the_ranks_do_not_hold_or_hold_too_often_is_named) {
  const auto error = [](const std::vector<Parts>& parts) {
    try {
      choose_writers(parts);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::plugin);
      return std::string(e.what());
    }
    return std::string();
  };
  const HeldPart low = part_of("w", {9, 4}, {0, 0, 4, 4}), high = part_of("w", {9, 4}, {4, 0, 5, 4});
  EXPECT_EQ(error({{low}, {high}}), "");
  for (const std::string& text : {error({{low}, {low}}), error({{whole("v", 2), low}, {whole("v", 2)}})}) {
    EXPECT_NE(text.find("the state w"), std::string::npos) << text;
    EXPECT_NE(text.find("16 of its 36"), std::string::npos) << text;
  }
  const std::string twice = error({{low, high}, {whole("w", 9)}});  // by one rank as two parts, by another as one
  EXPECT_NE(twice.find("72 of its 36"), std::string::npos) << twice;
}

// Over the store: each rank learns its own part of the same answer.
TEST(Writers, ranks_agree_over_the_store) {
  std::mt19937_64 random(6);
  const auto parts = random_parts(random, 4);
  const auto store = make_memory_store();
  std::vector<std::vector<bool>> found(parts.size());
  const auto errors = on_threads(4, [&](int64_t rank) {
    RankEnvironment environment;
    environment.rank = environment.local_rank = rank, environment.world_size = environment.local_size = 4;
    const auto i = static_cast<size_t>(rank);
    found[i] = choose_writers(parts[i], *store, environment, 20);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_EQ(found, choose_writers(parts));
}

}  // namespace
}  // namespace drivetrain::test
