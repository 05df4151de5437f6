// Ranks that are slower than those that do the same work: who is named, for what, and who is left alone.
#include "watch/straggler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace drivetrain {
namespace {

using Ranks = std::vector<int64_t>;
using Sets = std::vector<Ranks>;

WorkSeconds work(double forward, double data = 0.1) {
  WorkSeconds seconds = {};
  seconds[static_cast<size_t>(WorkPart::forward)] = forward;
  seconds[static_cast<size_t>(WorkPart::data)] = data;
  return seconds;
}

const StragglerRule kRule{.factor = 1.5, .steps = 20, .least_s = 0.05};

class Judged {
 public:
  explicit Judged(Sets alike, StragglerRule rule = kRule) : judge_(rule, std::move(alike)) {}
  using Of = std::function<WorkSeconds(int64_t rank, int step)>;
  Judged& run(int64_t ranks, int steps, const Of& of) {
    for (int i = 0; i < steps; ++i, ++step_) {
      std::vector<WorkSeconds> all;
      for (int64_t rank = 0; rank < ranks; ++rank) all.push_back(of(rank, step_));
      const StragglerJudge::News news = judge_.step(all);
      for (const Straggler& one : news.found) found.push_back(one), named.push_back(one.rank), at.push_back(step_);
      recovered.insert(recovered.end(), news.recovered.begin(), news.recovered.end());
    }
    return *this;
  }
  std::vector<Straggler> found;
  Ranks named, recovered;
  std::vector<int> at;

 private:
  StragglerJudge judge_;
  int step_ = 0;
};

Judged::Of slow(const Ranks& who, double times = 2) {
  return
      [=](int64_t rank, int) { return work(std::find(who.begin(), who.end(), rank) == who.end() ? 0.4 : 0.4 * times); };
}

TEST(Straggler, a_slow_rank_is_named_once_with_the_part_in_which_it_loses_its_time) {
  Judged judged({{0, 1, 2, 3}});
  judged.run(4, 200, [](int64_t rank, int) { return work(0.4, rank == 2 ? 0.5 : 0.1); });
  ASSERT_EQ(judged.named, Ranks{2});
  const Straggler& s = judged.found[0];
  EXPECT_EQ(s.part, WorkPart::data);
  EXPECT_NEAR(s.own_s, 0.9, 1e-9);
  EXPECT_NEAR(s.median_s, 0.5, 1e-9);
  EXPECT_NEAR(s.lost_s, 0.4, 1e-9);
  EXPECT_EQ(s.compared, (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(judged.at[0], 19) << "as soon as there are so many steps";
}

TEST(Straggler, one_that_becomes_slow_is_named_within_the_steps_that_are_looked_at) {
  Judged judged({{0, 1, 2}});
  judged.run(3, 50, slow({})).run(3, 20, slow({1}, 3));
  EXPECT_EQ(judged.named, Ranks{1});
}

TEST(Straggler, up_to_half_of_the_ranks_are_found) {
  EXPECT_EQ(Judged({{0, 1, 2, 3}}).run(4, 40, slow({1, 3})).named, (Ranks{1, 3}));
  EXPECT_EQ(Judged({{0, 1, 2, 3, 4}}).run(5, 40, slow({0, 4})).named, (Ranks{0, 4}));
  EXPECT_EQ(Judged({{0, 1}}).run(2, 40, slow({0})).named, Ranks{0}) << "of two the slower";
}

TEST(Straggler, where_most_or_all_are_slow_nobody_is) {
  EXPECT_EQ(Judged({{0, 1, 2, 3}}).run(4, 60, slow({0, 1, 2})).named, Ranks{});
  EXPECT_EQ(Judged({{0, 1, 2, 3}}).run(4, 60, slow({0, 1, 2, 3}, 5)).named, Ranks{});
  // All at once become slow, as on a file system that is overloaded.
  EXPECT_EQ(Judged({{0, 1, 2, 3}}).run(4, 30, slow({})).run(4, 60, slow({0, 1, 2, 3}, 5)).named, Ranks{});
}

TEST(Straggler, noise_is_nobodys) {
  std::mt19937 random(17);
  std::uniform_real_distribution<double> uniform(0.5, 1.5);
  std::exponential_distribution<double> tail(10);  // 0.1 s on average, now and then a second
  Judged judged({{0, 1, 2, 3, 4, 5, 6, 7}});
  judged.run(8, 10000, [&](int64_t, int) { return work(0.4 * uniform(random), 0.1 * uniform(random) + tail(random)); });
  EXPECT_EQ(judged.named, Ranks{});
}

TEST(Straggler, a_single_long_pause_is_no_habit) {
  Judged judged({{0, 1, 2, 3}});
  judged.run(4, 100, [](int64_t rank, int step) { return work(rank == 1 && step == 50 ? 60 : 0.4); });
  EXPECT_EQ(judged.named, Ranks{});
}

TEST(Straggler, ranks_that_are_slow_in_turn_are_not) {
  Judged judged({{0, 1, 2, 3}});
  judged.run(4, 400, [](int64_t rank, int step) { return work(step % 4 == rank ? 2 : 0.4); });
  EXPECT_EQ(judged.named, Ranks{});
}

TEST(Straggler, what_takes_no_time_worth_a_word_is_not_told) {
  Judged judged({{0, 1, 2, 3}});
  judged.run(4, 100, [](int64_t rank, int) { return work(rank == 3 ? 0.010 : 0.001, 0); });
  EXPECT_EQ(judged.named, Ranks{}) << "ten times, and nine milliseconds";
}

TEST(Straggler, stages_with_other_work_are_compared_each_with_its_own) {
  const Sets stages = {{0, 1, 2}, {3, 4, 5}};
  const auto uneven = [](int64_t rank, int) { return work(rank < 3 ? 1.2 : 0.3); };
  EXPECT_EQ(Judged(stages).run(6, 100, uneven).named, Ranks{});
  Judged judged(stages);
  judged.run(6, 100, [&](int64_t rank, int step) { return rank == 4 ? work(0.7) : uneven(rank, step); });
  ASSERT_EQ(judged.named, Ranks{4}) << "though all of the other stage take longer";
  EXPECT_EQ(judged.found[0].compared, (Ranks{3, 4, 5}));
}

TEST(Straggler, a_rank_without_its_like_is_not_judged) {
  EXPECT_EQ(Judged({{0}, {1}, {2}}).run(3, 100, slow({1}, 50)).named, Ranks{});
}

TEST(Straggler, one_that_has_recovered_is_told_and_may_be_named_again) {
  Judged judged({{0, 1, 2, 3}});
  judged.run(4, 40, slow({2})).run(4, 40, slow({}));
  EXPECT_EQ(judged.recovered, Ranks{2});
  judged.run(4, 40, slow({2}));
  EXPECT_EQ(judged.named, (Ranks{2, 2}));
  // Between the two limits nothing changes, so that it is not told in turn.
  Judged near({{0, 1, 2, 3}});
  near.run(4, 40, slow({2}, 1.7)).run(4, 200, [](int64_t rank, int step) {
    return work(rank == 2 ? (step % 2 == 0 ? 0.72 : 0.62) : 0.4);
  });
  EXPECT_EQ(near.named, Ranks{2});
  EXPECT_EQ(near.recovered, Ranks{});
}

TEST(Straggler, may_be_switched_off) {
  EXPECT_EQ(Judged({{0, 1, 2, 3}}, {.factor = 0}).run(4, 100, slow({2}, 9)).named, Ranks{});
}

TEST(Straggler, ranks_alike_differ_in_the_axes_that_cut_the_batch) {
  EXPECT_EQ(ranks_alike({4}, {0}), (Sets{{0, 1, 2, 3}}));
  EXPECT_EQ(ranks_alike({2, 3}, {1}), (Sets{{0, 2, 4}, {1, 3, 5}})) << "the first axis is the fastest";
  EXPECT_EQ(ranks_alike({2, 2, 2}, {1}), (Sets{{0, 2}, {4, 6}, {1, 3}, {5, 7}}));
  EXPECT_EQ(ranks_alike({2, 2, 2}, {1, 2}), (Sets{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(ranks_alike({2}, {}), (Sets{{0}, {1}}));
  EXPECT_EQ(ranks_alike({}, {}), (Sets{{0}}));
}

TEST(Straggler, is_told_in_one_line) {
  Straggler s;
  s.rank = 3, s.own_s = 0.9, s.median_s = 0.5, s.part = WorkPart::data, s.lost_s = 0.38, s.compared = {0, 1, 2, 3};
  s.steps = 20;
  EXPECT_EQ(straggler_text(s, "b", "dataset/text, hook read"),
            "rank 3 on host b is a straggler: its own work takes 1.8 times the median of ranks 0-3, which do the same "
            "work, over the last 20 steps (0.900 s against 0.500 s a step); most of the difference, 0.380 s a step, is "
            "in reading data (dataset/text, hook read)");
  s.median_s = 0;
  EXPECT_NE(straggler_text(s, "", "").find("rank 3 is a straggler: its own work takes more than 100 times the median"),
            std::string::npos);
}

TEST(OwnWork, is_what_is_done_outside_of_calls_of_the_communicator) {
  constexpr int64_t kSecond = 1'000'000'000;
  OwnWork work;
  work.enter(WorkPart::data, 10 * kSecond);
  work.enter(WorkPart::forward, 12 * kSecond);
  work.call_begins(13 * kSecond), work.call_begins(14 * kSecond);  // one call within another
  work.call_ends(20 * kSecond), work.call_ends(21 * kSecond);
  work.enter(WorkPart::optimizer, 24 * kSecond);
  work.call_begins(25 * kSecond);
  work.enter(WorkPart::between, 26 * kSecond);  // in the call
  work.call_ends(30 * kSecond);
  const WorkSeconds taken = work.take(31 * kSecond);
  EXPECT_EQ(taken[static_cast<size_t>(WorkPart::data)], 2);
  EXPECT_EQ(taken[static_cast<size_t>(WorkPart::forward)], 4);
  EXPECT_EQ(taken[static_cast<size_t>(WorkPart::optimizer)], 1);
  EXPECT_EQ(taken[static_cast<size_t>(WorkPart::between)], 1);
  work.skip(40 * kSecond);
  EXPECT_EQ(total(work.take(42 * kSecond)), 2) << "the part goes on, without what was skipped";
}

}  // namespace
}  // namespace drivetrain
