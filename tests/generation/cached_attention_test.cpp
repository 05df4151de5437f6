// Attention through the key/value cache, of every attention plugin, against whole sequences.
#include <drivetrain/toolkit/layers/cached_attention.h>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <cmath>

#include <drivetrain/testkit/kit/host.h>
#include "generate/generation_cache.h"
#include "step/step_state.h"
#include "support/train_threads.h"

namespace drivetrain::test {
namespace {

at::Tensor drawn(at::IntArrayRef shape, const std::string& name) {
  at::Tensor x = at::empty(shape, at::TensorOptions(at::kFloat)), flat = x.view({-1});
  fill_normal(flat, 5, name, 0, 1);
  return x;
}

constexpr int64_t kRows = 2, kPositions = 14, kHeads = 4, kHeadSize = 8;

// One layer in one unit.
struct OneLayer {
  OneLayer() { state.begin(1, Mode::generate, {Visit{}}); }
  StepState state{1};
  GenerationCache cache{state, kRows, kPositions};
};

struct Sequences {
  explicit Sequences(int64_t groups)
      : q(drawn({kRows, kPositions, kHeads, kHeadSize}, "q")),
        k(drawn({kRows, kPositions, groups, kHeadSize}, "k")),
        v(drawn({kRows, kPositions, groups, kHeadSize}, "v")) {}
  at::Tensor q, k, v;
};

// Of each row the `count` positions behind those that it has.
at::Tensor columns(const at::Tensor& x, const std::vector<int64_t>& past, int64_t count) {
  Tensors rows;
  for (int64_t b = 0; b < kRows; ++b) rows.push_back(x.narrow(0, b, 1).narrow(1, past[static_cast<size_t>(b)], count));
  return at::cat(rows);
}

struct Pass {
  int64_t columns;
  std::vector<int64_t> count;  // of each row
};

// In one row of unequal lengths the columns behind `count` are filling, which later passes write over.
void expect_same_as_whole(const Attention& attention, const Sequences& x, const AttentionArgs& args,
                          const std::vector<Pass>& passes) {
  const at::Tensor whole = attention.forward(x.q, x.k, x.v, args).out;
  OneLayer layer;
  for (const Pass& pass : passes) {
    const std::vector<int64_t> past = layer.cache.past();
    const auto now = [&](const at::Tensor& all) { return columns(all, past, pass.columns); };
    const at::Tensor out = cached_attention(attention, "layer", now(x.q), now(x.k), now(x.v), args, layer.cache);
    for (int64_t b = 0; b < kRows; ++b) {
      const int64_t count = pass.count[static_cast<size_t>(b)], first = past[static_cast<size_t>(b)];
      const at::Tensor found = out[b].narrow(0, 0, count), wanted = whole[b].narrow(0, first, count);
      EXPECT_LE((found - wanted).abs().max().item<double>(), 2e-6) << "row " << b << " from position " << first;
    }
    layer.cache.advance(pass.count);
  }
}

AttentionArgs causal(int64_t window = 0) {
  AttentionArgs args;
  args.scale = 1 / std::sqrt(static_cast<double>(kHeadSize));
  args.window = window;
  return args;
}

class CachedAttention : public testing::TestWithParam<std::string> {
 protected:
  const Host host_;
  const std::shared_ptr<Attention> attention_ = built_plugins().create<Attention>(GetParam(), nullptr, host_.services);

  void check(const std::vector<Pass>& passes) const {
    for (const int64_t groups : {kHeads, kHeads / 2, int64_t{1}})
      for (const int64_t window : {0, 1, 3, 5, 20}) {
        if (window > 0 && !attention_->abilities().window) continue;
        SCOPED_TRACE(concat(groups, " key/value heads, window ", window));
        expect_same_as_whole(*attention_, Sequences(groups), causal(window), passes);
      }
  }
};

TEST_P(CachedAttention, token_by_token_is_the_whole_sequence) {
  check({{6, {6, 6}}, {1, {1, 1}}, {1, {1, 1}}, {1, {1, 1}}, {1, {1, 1}}, {1, {1, 1}}});
}
TEST_P(CachedAttention, several_columns_behind_a_past_are_the_whole_sequence) {
  check({{5, {5, 5}}, {4, {4, 4}}, {3, {3, 3}}});
}
TEST_P(CachedAttention, rows_of_unequal_lengths_are_each_the_whole_sequence) {
  check({{7, {7, 3}}, {1, {1, 1}}, {1, {1, 1}}, {2, {2, 2}}, {1, {1, 1}}});
}

INSTANTIATE_TEST_SUITE_P(Of, CachedAttention, testing::ValuesIn(built_plugins().names(Attention::kKind)),
                         [](const auto& info) { return info.param; });

TEST(CachedAttention, what_cannot_be_computed_so_is_refused_in_the_first_pass) {
  struct Neither : Attention {
    AttentionAbilities abilities() const override {
      AttentionAbilities can;
      can.remedy = "use another one";
      return can;
    }
    AttentionState forward(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                           const AttentionArgs&) const override {
      return {};
    }
    Tensors backward(const at::Tensor&, const AttentionState&, const AttentionArgs&) const override { return {}; }
  };
  const Neither neither;
  const Sequences x(kHeads);
  OneLayer layer;
  const auto refusal = [&](const AttentionArgs& args) {
    return error_of([&] { cached_attention(neither, "block.3.attn", x.q, x.k, x.v, args, layer.cache); });
  };
  for (const char* part : {"block.3.attn", "q_offset", "use another one"})
    EXPECT_NE(refusal(causal()).find(part), std::string::npos) << refusal(causal());
  AttentionArgs both_ways = causal();
  both_ways.causal = false;
  EXPECT_NE(refusal(both_ways).find("not causal"), std::string::npos) << refusal(both_ways);
}

TEST(GenerationCache, refuses_a_name_that_comes_twice_and_positions_beyond_its_capacity) {
  const Sequences x(kHeads);
  OneLayer layer;
  layer.cache.append("layer", x.k, x.v);
  EXPECT_NE(error_of([&] { layer.cache.append("layer", x.k, x.v); }).find("in this pass already"), std::string::npos);
  layer.cache.advance({kPositions, kPositions});
  EXPECT_NE(error_of([&] { layer.cache.append("layer", x.k, x.v); }).find("positions"), std::string::npos);
}

TEST(GenerationCache, keeps_the_rows_that_go_on) {
  const Sequences x(kHeads);
  OneLayer layer;
  layer.cache.append("layer", x.k.narrow(1, 0, 3), x.v.narrow(1, 0, 3));
  layer.cache.advance({3, 2});
  layer.cache.keep({1});
  EXPECT_EQ(layer.cache.past(), std::vector<int64_t>{2});
  const auto [k, v] =
      layer.cache.append("layer", x.k.narrow(0, 1, 1).narrow(1, 2, 1), x.v.narrow(0, 1, 1).narrow(1, 2, 1));
  EXPECT_TRUE(k.equal(x.k.narrow(0, 1, 1).narrow(1, 0, 3)));
  EXPECT_TRUE(v.equal(x.v.narrow(0, 1, 1).narrow(1, 0, 3)));
}

}  // namespace
}  // namespace drivetrain::test
