// The time of a step: closed formulas of its parts, and what must hold on any machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/by_hand.h"

namespace drivetrain {
namespace {

using namespace by_hand;

TEST(StepTime, a_token_costs_six_operations_per_parameter_of_a_product) {
  const double matrices = 8 * 12 * 1024.0 * 1024 + 32000 * 1024.0;
  StepWork work;
  add_shape(work, shape(), {.tokens = 1, .seq_length = 0});
  double flops = 0;
  for (const auto* list : {&work.products, &work.head})
    for (const ProductWork& product : *list) flops += 3 * product.flops();
  EXPECT_NEAR(flops, 6 * matrices, 1e-3);
}

TEST(StepTime, on_an_ideal_machine_a_step_takes_what_the_operations_take) {
  Row r = row();
  const StepTime time = time_of(r, ideal());
  const double tokens = 4 * 8 * 1024;
  const double kernel = 0.5 * 2 * 8 * 1024.0 * 1024;  // an attention kernel's backward computes the scores again
  EXPECT_NEAR(time.seconds, tokens * (model_flops(1024) + kernel) / 100e12, 1e-4 * time.seconds);
  r.recompute = true;
  const double again = (model_flops(1024) - 6 * 32000.0 * 1024) / 3;
  EXPECT_NEAR(time_of(r, ideal()).seconds - time.seconds, tokens * again / 100e12, 1e-4 * time.seconds);
}

// A window w of S counts as a sequence of 2 w - w^2 / S: here 7/16 of S = 1024 in half of the layers, and the rate is
// that of a shorter sequence.
TEST(StepTime, windows_take_the_time_of_what_they_attend_to) {
  Hardware h = ideal();
  h.attention.half_seq = 200;
  const auto attention = [&](double layers, double seq, const ModelFacts* windows) {
    ModelShape m = shape();
    m.layers = layers;
    StepWork work;
    work.dtype = "bfloat16";
    add_shape(work, m, {.tokens = 4096, .seq_length = seq});
    if (windows) apply_windows(work, *windows);
    work.products.clear(), work.head.clear(), work.passed_bytes = work.loss_bytes = 0;
    return step_time(work, h, 1).seconds;
  };
  ModelFacts model;
  model.flops_per_token_fixed = 1e9, model.flops_per_token_S = 4 * 6 * 1024.0;
  model.windowed = {{256, 4 * 6 * 1024.0}};
  const double apart = attention(4, 1024, nullptr) + attention(4, 448, nullptr);
  EXPECT_NEAR(attention(8, 1024, &model), apart, 1e-9 * apart);
  model.windowed = {{2048, 4 * 6 * 1024.0}};
  EXPECT_DOUBLE_EQ(attention(8, 1024, &model), attention(8, 1024, nullptr)) << "the window hides nothing";
}

TEST(StepTime, a_pipeline_idles_p_minus_one_over_m) {
  Row r = row();
  const double alone = time_of(r, ideal()).seconds;
  r.stages = 4, r.ranks = 4;
  EXPECT_NEAR(time_of(r, ideal()).seconds, alone / 4 * (1 + 3.0 / 8), 1e-4 * alone);
}

TEST(StepTime, parts_sum_up_to_the_step_and_what_is_hidden_is_beside_it) {
  Row r = row();
  r.ranks = 16, r.shard_ranks = 8, r.tensor = 2;
  Hardware h = ideal();
  h.network.gb_per_s = 10, h.host_link.gb_per_s = 100, h.memory.gb_per_s = 1000, h.overlap = 0.5;
  const StepTime time = time_of(r, h);
  double sum = 0, hidden = 0;
  for (const TimePart& part : time.parts) sum += part.seconds, hidden += part.hidden;
  EXPECT_NEAR(sum, time.seconds, 1e-12);
  EXPECT_GT(hidden, 0);
  h.overlap = 0;
  double all = 0;
  for (const TimePart& part : time_of(r, h).parts) all += part.seconds;
  EXPECT_NEAR(all, sum + hidden, 1e-9) << "what nothing covers is waited for";
}

TEST(StepTime, the_norm_of_gradients_has_a_rate_of_its_own_or_that_of_updates) {
  Hardware h = ideal();
  h.memory = {.gb_per_s = 100, .share = 0.5, .gib = 80};
  StepWork work = work_of(row());
  work.updated_bytes = 6e9;
  const double without = step_time(work, h, 1).seconds;
  work.norm_bytes = 1e9;
  EXPECT_NEAR(step_time(work, h, 1).seconds - without, 1e9 / 50e9, 1e-9);
  h.memory.norm_share = 0.2;
  const StepTime time = step_time(work, h, 1);
  EXPECT_NEAR(time.seconds - without, 1e9 / 20e9, 1e-9);
  const auto norm = std::find_if(time.parts.begin(), time.parts.end(),
                                 [](const TimePart& part) { return part.what == "norm of gradients"; });
  ASSERT_NE(norm, time.parts.end());
  EXPECT_NEAR(norm->seconds, 1e9 / 20e9, 1e-9);
}

TEST(StepTime, products_of_the_optimizer_take_their_time_once_in_a_step_and_messages_move_beside_them) {
  Hardware h = ideal();
  h.memory = {.gb_per_s = 100, .share = 0.5, .gib = 80}, h.overlap = 0.5, h.host_link.gb_per_s = 10;
  StepWork work = work_of(row());
  const double without = step_time(work, h, 1).seconds;
  work.update_products = {{"optimizer", 1000, 1000, 1000, 50}}, work.update_passed_bytes = 1e9;
  const double more = 2e9 * 50 / 100e12 + 1e9 / 50e9;
  EXPECT_NEAR(step_time(work, h, 1).seconds - without, more, 1e-9);
  MessageWork message{.axis = "dp", .what = "results", .group = {2, 1}, .bytes = 2e6};
  message.direct = message.beside_update = true;
  work.messages.push_back(message);
  EXPECT_NEAR(step_time(work, h, 1).seconds - without, more, 1e-9) << "all of it is beside half of a millisecond";
  work.messages.back().bytes = 2e7;
  EXPECT_NEAR(step_time(work, h, 1).seconds - without, more + 2e7 / 10e9 - 0.5 * 1e-3, 1e-9);
}

TEST(StepTime, a_faster_machine_is_never_slower) {
  Hardware base = ideal();
  base.products = {.share = 0.5, .half_rows = 100, .half_width = 100}, base.attention = {.share = 0.4, .half_seq = 100};
  base.memory.gb_per_s = 1000, base.host_link.gb_per_s = 100, base.network.gb_per_s = 10, base.overlap = 0.3;
  base.host_link.latency_us = base.network.latency_us = 5, base.network.rank_latency_us = 100;
  using Change = void (*)(Hardware&);
  const Change changes[] = {
      [](Hardware& h) { h.products.share *= 1.5; },   [](Hardware& h) { h.products.half_width /= 2; },
      [](Hardware& h) { h.attention.share *= 1.5; },  [](Hardware& h) { h.memory.gb_per_s *= 2; },
      [](Hardware& h) { h.host_link.gb_per_s *= 2; }, [](Hardware& h) { h.network.gb_per_s *= 2; },
      [](Hardware& h) { h.overlap = 0.9; },           [](Hardware& h) { h.network.latency_us = 0; }};
  for (const bool values : {false, true})
    for (const int64_t tensor : {1, 2}) {
      Row r = row();
      r.ranks = 32, r.tensor = tensor, r.shard_values = values, r.shard_ranks = -1;
      const double before = time_of(r, base).seconds;
      for (const Change& change : changes) {
        Hardware h = base;
        change(h);
        EXPECT_LE(time_of(r, h).seconds, before * (1 + 1e-12));
      }
    }
}

TEST(StepTime, a_type_without_a_peak_is_refused_by_key_and_remedy) {
  Row other = row();
  other.dtype = "float32";
  try {
    step_time(work_of(other), ideal(), 1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::config);
    const std::string text = e.what();
    for (const char* word : {"ideal.json", "peak_tflops.float32", "bfloat16", "bench hardware"})
      EXPECT_NE(text.find(word), std::string::npos) << text;
  }
}

TEST(StepTime, copies_over_pcie_are_waited_for_as_far_as_nothing_goes_on_beside_them) {
  using Beside = HostTraffic::Beside;
  Hardware h = ideal();
  h.pcie = {.gb_per_s = 10, .share = 0.5}, h.overlap = 0.5;
  const StepWork plain = work_of(row());
  const double before = step_time(plain, h, 1).seconds, forward = before / 3 / 8;  // about, of a micro-batch
  const auto waited = [&](const HostTraffic& copies) {
    StepWork work = plain;
    work.copies = {copies};
    return step_time(work, h, 1).seconds - before;
  };
  EXPECT_NEAR(waited({"x", 5e9, 8, Beside::nothing}), 1, 1e-9);
  EXPECT_NEAR(waited({"x", 5e9 * forward, 1, Beside::forward}), 0.5 * forward, 0.2 * forward);
  EXPECT_NEAR(waited({"x", 5e9 * forward, 8, Beside::forward}), 0, 1e-9) << "spread over eight";
  EXPECT_LT(waited({"x", 5e9 * before, 8, Beside::backward}), waited({"x", 5e9 * before, 8, Beside::forward}));
  EXPECT_GT(waited({"x", 5e9 * before, 1, Beside::backward}), waited({"x", 5e9 * before, 8, Beside::backward}));
}

TEST(StepTime, copies_hide_in_the_room_that_messages_and_other_copies_leave) {
  using Beside = HostTraffic::Beside;
  Hardware h = ideal();
  h.pcie = {.gb_per_s = 10, .share = 1}, h.overlap = 1, h.network.gb_per_s = h.host_link.gb_per_s = 1;
  Row r = row();
  r.ranks = 8, r.shard_ranks = 8;
  const StepWork plain = work_of(r);
  double hidden = 0;
  for (const TimePart& part : step_time(plain, h, 1).parts) hidden += part.hidden;
  ASSERT_GT(hidden, 0) << "messages that fill the backward passes";
  const auto waited = [&](const std::vector<HostTraffic>& copies) {
    StepWork work = plain;
    work.copies = copies;
    return step_time(work, h, 1).seconds - step_time(plain, h, 1).seconds;
  };
  const HostTraffic large{"x", 10e9 * 1000, 8, Beside::backward};
  const double most = 1000 - waited({large});  // that backward passes hide of copies
  EXPECT_NEAR(waited({large, large}), 2000 - most, 1e-6);
  EXPECT_LT(most, 1000);
  HostTraffic beside_forward = large;
  beside_forward.beside = Beside::forward;
  EXPECT_NEAR(waited({large, beside_forward}), waited({large}) + waited({beside_forward}), 1e-6);
}

TEST(StepTime, what_the_host_updates_goes_at_its_memory_s_rate_and_copies_hide_beside_it) {
  Hardware h = ideal();
  h.pcie = {.gb_per_s = 10, .share = 1}, h.host_memory = {.gb_per_s = 20, .share = 0.5};
  StepWork work = work_of(row());
  const double before = step_time(work, h, 1).seconds;
  work.host_updated_bytes = 10e9;
  EXPECT_NEAR(step_time(work, h, 1).seconds - before, 1, 1e-9);
  work.copies = {{"new values", 5e9, 1, HostTraffic::Beside::update}};
  EXPECT_NEAR(step_time(work, h, 1).seconds - before, 1, 1e-9);
  work.copies[0].bytes = 15e9;
  EXPECT_NEAR(step_time(work, h, 1).seconds - before, 1.5, 1e-9);
}

TEST(StepTime, a_machine_whose_file_does_not_know_its_host_s_memory_is_refused_where_that_is_needed) {
  StepWork work = work_of(row());
  EXPECT_NO_THROW(step_time(work, ideal(), 1));
  work.host_updated_bytes = 1;
  try {
    step_time(work, ideal(), 1);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::config);
    const std::string text = e.what();
    for (const char* word : {"ideal.json", "host_memory.gb_per_s", "bench hardware"})
      EXPECT_NE(text.find(word), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace drivetrain
