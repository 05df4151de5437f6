// The planned arena: no two tensors that live at the same time share a byte, whatever a step asks for.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include <mutex>
#include <random>
#include <thread>

#include "memory/cpu_allocator.h"
#include "memory/step_arena.h"

namespace drivetrain {
namespace {

struct Arena : ::testing::Test {
  static void SetUpTestSuite() { install_cpu_allocator(); }
  StepArena arena;
};

at::Tensor filled(int64_t floats, float value) { return at::full({floats}, value, at::TensorOptions(at::kFloat)); }

TEST(ArenaPlan, gives_overlapping_lifetimes_disjoint_places_and_reuses_the_rest) {
  // a and b live together, c after a, d outlives the step.
  const ArenaPlan plan = plan_arena({{1 << 20, 0, 3}, {1 << 19, 1, 5}, {1 << 20, 4, 6}, {1 << 20, 2, -1}});
  EXPECT_EQ(plan.offsets[0], plan.offsets[2]);
  EXPECT_GE(plan.offsets[1], plan.offsets[0] + (1 << 20));
  EXPECT_EQ(plan.offsets[3], -1);
  EXPECT_EQ(plan.bytes, size_t{(1 << 20) + (1 << 19)});
}

TEST(ArenaPlan, of_random_steps_never_overlaps_and_is_no_larger_than_all_together) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<StepEvent> events;
    size_t all = 0;
    for (int64_t i = 0; i < 60; ++i) {
      const auto born = static_cast<int64_t>(random() % 100);
      events.push_back({4096 * (1 + random() % 64), born, born + 1 + static_cast<int64_t>(random() % 30)});
      all += events.back().bytes;
    }
    const ArenaPlan plan = plan_arena(events);
    EXPECT_LE(plan.bytes, all);
    for (size_t i = 0; i < events.size(); ++i)
      for (size_t j = 0; j < i; ++j) {
        const bool together = events[i].born < events[j].died && events[j].born < events[i].died;
        const bool apart = plan.offsets[i] + static_cast<int64_t>(events[i].bytes) <= plan.offsets[j] ||
                           plan.offsets[j] + static_cast<int64_t>(events[j].bytes) <= plan.offsets[i];
        EXPECT_TRUE(!together || apart) << i << " " << j;
      }
  }
}

TEST_F(Arena, a_repeated_step_gets_the_same_places_every_time) {
  std::vector<const void*> first, again;
  for (int step = 0; step < 5; ++step) {
    const ArenaStep span(arena);
    std::vector<const void*> places;
    at::Tensor a = filled(100'000, 1);
    places.push_back(a.const_data_ptr());
    const at::Tensor b = filled(200'000, 2);
    places.push_back(b.const_data_ptr());
    a = at::Tensor();
    const at::Tensor c = filled(90'000, 3);
    places.push_back(c.const_data_ptr());
    EXPECT_EQ(b[199'999].item<float>(), 2);
    EXPECT_EQ(c[89'999].item<float>(), 3);
    (step < 4 ? first : again) = places;
  }
  EXPECT_EQ(first, again);
  EXPECT_EQ(first[0], first[2]);  // c lies where a was
}

TEST_F(Arena, random_steps_that_repeat_change_and_leak_keep_every_value) {
  std::mt19937 random(11);
  std::vector<std::pair<at::Tensor, float>> kept;  // outlive their step
  float value = 0;
  for (int round = 0; round < 12; ++round) {
    const uint32_t seed = random();
    for (int step = 0; step < 4; ++step) {
      std::mt19937 same(step == 3 && round % 3 == 0 ? seed + 1 : seed);  // now and then the last step is another
      const ArenaStep span(arena);
      std::vector<std::pair<at::Tensor, float>> live;
      for (int i = 0; i < 40; ++i) {
        const auto floats = static_cast<int64_t>(20'000 + same() % 50'000);
        live.emplace_back(filled(floats, ++value), value);
        while (live.size() > 1 && same() % 3 == 0) {
          const size_t victim = same() % live.size();
          const auto& [t, expected] = live[victim];
          ASSERT_EQ(t[0].item<float>(), expected);
          ASSERT_EQ(t[t.numel() - 1].item<float>(), expected);
          live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
        }
      }
      // A place that is not given back in time must not be given away.
      if (step % 2 == 1) kept.push_back(live.back());
      if (kept.size() > 3) kept.erase(kept.begin());
      for (const auto& [t, expected] : live) ASSERT_TRUE((t == expected).all().item<bool>());
    }
    for (const auto& [t, expected] : kept) ASSERT_TRUE((t == expected).all().item<bool>());
  }
}

TEST_F(Arena, tensors_may_outlive_it) {
  at::Tensor kept;
  {
    StepArena other;
    for (int step = 0; step < 4; ++step) {
      const ArenaStep span(other);
      at::Tensor a = filled(50'000, 5);
      if (step == 3) kept = a;
    }
  }
  EXPECT_TRUE((kept == 5).all().item<bool>());
}

TEST_F(Arena, what_is_in_use_and_reserved_comes_back) {
  // now the cache holds two blocks
  for (int i = 0; i < 2; ++i) const at::Tensor a = filled(1 << 20, 1), b = filled(1 << 20, 1);
  const int64_t in_use = cpu_memory().in_use, reserved = cpu_memory().reserved;
  {
    StepArena other;
    for (int step = 0; step < 4; ++step) {
      const ArenaStep span(other);
      const at::Tensor a = filled(1 << 20, 1), b = filled(1 << 20, 1);
      EXPECT_GE(cpu_memory().in_use, in_use + (8 << 20));
    }
    EXPECT_GE(cpu_memory().reserved, 8 << 20);
  }
  EXPECT_EQ(cpu_memory().in_use, in_use);
  EXPECT_LE(cpu_memory().reserved, reserved);
}

TEST_F(Arena, threads_have_steps_of_their_own_and_may_free_each_others_tensors) {
  std::mutex mutex;
  at::Tensor handed;  // from one thread to the other, freed there
  const auto rank = [&](float base) {
    StepArena own;
    for (int step = 0; step < 40; ++step) {
      const ArenaStep span(own);
      const at::Tensor a = filled(60'000, base + 1), b = filled(120'000, base + 2);
      at::Tensor mine = filled(80'000, base + 3), other;
      {
        const std::lock_guard lock(mutex);
        other = std::exchange(handed, mine);
      }
      mine.reset();
      const at::Tensor c = filled(80'000, base + 4);
      EXPECT_TRUE((a == base + 1).all().item<bool>());
      EXPECT_TRUE((b == base + 2).all().item<bool>());
      EXPECT_TRUE((c == base + 4).all().item<bool>());
      if (other.defined()) {
        EXPECT_TRUE((other == other[0]).all().item<bool>());
      }
    }
  };
  std::thread first(rank, 10), second(rank, 20);
  first.join(), second.join();
}

}  // namespace
}  // namespace drivetrain
