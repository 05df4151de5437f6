// What a step's time has beside operations and bytes that any implementation needs: tiles of a GPU, scores that
// attention keeps, what a profile of another system says.
#include <gtest/gtest.h>

#include "plan/by_hand.h"

namespace drivetrain {
namespace {

using namespace by_hand;

// Half a wave of tiles is the mean that the rates have; on a processor there are none.
TEST(StepWaste, shapes_that_fill_the_last_wave_are_faster_than_those_that_begin_another) {
  Hardware h = ideal();
  const ProductWork full = {"full", 128 * 108, 256, 256, 1}, over = {"over", 128 * 109, 256, 256, 1};
  const auto rate = [&](const ProductWork& p) { return p.flops() / product_seconds(p, "bfloat16", h); };
  EXPECT_DOUBLE_EQ(rate(full), rate(over));
  h.multiprocessors = 108;
  EXPECT_GT(rate(full), 1.2 * rate(over));
  const ProductWork odd = {"odd", 4096, 4097, 4096, 1}, even = {"even", 4096, 4096, 4096, 1};
  EXPECT_GT(product_seconds(odd, "bfloat16", h), product_seconds(even, "bfloat16", h) * 1.01);
}

TEST(StepWaste, scores_that_are_kept_whole_are_moved_at_the_rate_of_passes) {
  Hardware h = ideal();
  h.memory.gb_per_s = 100;
  StepWork work = work_of(row());
  const double before = step_time(work, h, 1).seconds;
  work.attention_bytes = 1e9, work.attention_bytes_backward = 2e9;
  EXPECT_NEAR(step_time(work, h, 1).seconds - before, 8 * 3e9 / 100e9, 1e-9);
  work.attention_again = 1;
  StepWork plain = work;
  plain.attention_bytes = plain.attention_bytes_backward = 0;
  EXPECT_NEAR(step_time(work, h, 1).seconds - step_time(plain, h, 1).seconds, 8 * 4e9 / 100e9, 1e-9);
}

TEST(StepWaste, a_profile_says_overheads_overlap_and_what_is_waited_for) {
  Hardware h = ideal();
  h.network.gb_per_s = h.host_link.gb_per_s = 10, h.memory.gb_per_s = 1000, h.overlap = 0.5;
  Row r = row();
  r.ranks = 16, r.shard_ranks = 8;
  StepWork work = work_of(r);
  for (MessageWork& message : work.messages) message.beside_micro_batches = 1;
  ProfileTime profile;
  profile.overlap = 0.5, profile.update_bytes = 0;
  const double before = step_time(with_profile(work, profile), h, 1).seconds;
  const auto more = [&] { return step_time(with_profile(work, profile), h, 1).seconds - before; };
  profile.step_s = 0.5, profile.owner_s = 0.01;
  EXPECT_NEAR(more(), 0.5 + 8 * 0.01, 1e-9);
  profile.update_bytes = 40;
  EXPECT_NEAR(more(), 0.58 + 40 * kParameters / 8 / 1e12, 1e-9);
  profile = {.overlap = 0.5, .waits = {"values"}};
  EXPECT_GT(more(), 0) << "values are gathered while nothing else goes on";
  profile = {.overlap = 0.9};
  EXPECT_LT(more(), 0);
}

}  // namespace
}  // namespace drivetrain
