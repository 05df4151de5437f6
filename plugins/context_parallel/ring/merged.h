// Results of attention over blocks of keys as one result over all of them.
//
// Source: Liu et al. 2023, "Ring Attention", and Milakov and Gimelshein 2018: with l the log-sum-exp of a block's
// scores,
//   l = log(exp(l1) + exp(l2)),  out = out1 exp(l1 - l) + out2 exp(l2 - l)
// in float32 (float64 for float64 inputs). A query that no block has keys for stays 0 with l -infinity. Value type; any
// thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace drivetrain::ring {

class Merged {
 public:
  // The first block's results, [B, S, H, D] and [B, H, S]; they are worked on in place.
  Merged(const at::Tensor& out, const at::Tensor& lse);
  // Of queries that have seen nothing yet, like q [B, S, H, D].
  static Merged nothing(const at::Tensor& q);
  // Those of another block, for rows from first_row on and queries from first on, as many as `out` has.
  void add(const at::Tensor& out, const at::Tensor& lse, int64_t first_row, int64_t first);

  const at::Tensor& out() const { return out_; }
  const at::Tensor& lse() const { return lse_; }

 private:
  at::Tensor out_, lse_;
};

}  // namespace drivetrain::ring
