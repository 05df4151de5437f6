// Whether an attention with a window reads keys that no query near them sees: numbers there are none, which would show
// in every product that they are part of, even by a probability of 0.
#pragma once

#include <gtest/gtest.h>

#include <ATen/ops/isfinite.h>

#include <limits>

#include <drivetrain/testkit/attention/suite.h>

namespace drivetrain::test {

inline void expect_far_keys_unread(const Attention& attention, at::ScalarType type) {
  constexpr int64_t kLength = 768, kBad = 256, kWindow = 40, kFirstGood = 512;
  AttentionCase c{"", 1, kLength, kLength, 4, 2, 16, attention_args(true, kWindow)};
  c.args.scale = 0.25;
  AttentionInputs x = attention_inputs(c, type);
  x.k = x.k.clone(), x.v = x.v.clone();
  for (const at::Tensor* keys : {&x.k, &x.v}) keys->narrow(1, 0, kBad).fill_(std::numeric_limits<double>::quiet_NaN());
  const AttentionResult r = run_attention(attention, x.q, x.k, x.v, x.dout, c.args);
  for (const at::Tensor* part : {&r.out, &r.dq, &r.dk, &r.dv})
    EXPECT_TRUE(part->narrow(1, kFirstGood, kLength - kFirstGood).isfinite().all().item<bool>()) << type;
}

}  // namespace drivetrain::test
