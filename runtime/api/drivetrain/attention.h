// Scaled dot-product attention in two plain halves, without autograd inside: the SDK makes one differentiable function
// of them, hand-written blocks call them directly, and ring attention calls `backward` per block with the merged out
// and lse.
//
// Source: Vaswani et al. 2017, eq. 1; Dao et al. 2022 (FlashAttention) for lse. Legend: B batch, S queries, T keys, H
// heads, G key/value heads (H is a multiple of G; query head h uses key/value head h / (H / G)), D head size.
//   q [B, S, H, D]   k, v [B, T, G, D]   out [B, S, H, D]   lse [B, H, S] float32 (float64 for
//   float64 inputs), natural log, -infinity for a query that sees no key (its out is 0)
// Any strides with D contiguous. Stateless: const calls from any thread. Stream: the current one.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <set>
#include <string>

#include <drivetrain/param.h>
#include <drivetrain/plugin.h>
#include <drivetrain/random.h>

DRIVETRAIN_CONTRACT(attention)

namespace drivetrain {

// Several sequences in one row: positions cu_seqlens[i] .. cu_seqlens[i + 1] of the only batch row see only each other.
struct Varlen {
  std::vector<int64_t> cu_seqlens;  // from 0 to S, ascending; empty: one sequence per row
};

struct AttentionArgs {
  double scale = 0;      // of the scores; usually 1 / sqrt(D)
  double dropout = 0;    // of the attention probabilities
  bool causal = true;    // key j is seen by query i if j <= i + q_offset
  int64_t window = 0;    // 0: none; else also |i + q_offset - j| < window
  int64_t q_offset = 0;  // position of query 0 among the keys
  Varlen varlen;
  RandomKey key;  // for dropout
};

// What backward needs. `out` and `lse` may be replaced by merged ones before backward.
struct AttentionState {
  at::Tensor q, k, v, out, lse;
  Tensors extra;
};

struct AttentionAbilities {
  std::set<int64_t> head_sizes;  // empty: any
  std::set<at::ScalarType> dtypes;
  bool gqa = false, varlen = false, window = false, q_offset = false, dropout = false, non_causal = true;
  bool returns_lse = false, deterministic = true;
  // What `out` depends on beyond the arguments. Unsaid means that there may be something, and whatever gives this
  // plugin a part of a sequence, or of the heads, refuses it. partial_keys: exactly softmax over the keys it is given,
  // with no window, bias, sink or mask by position but those of the arguments, so that results over parts of the keys
  // are merged by their lse.
  bool partial_keys = false;
  // partial_heads: every head is computed alike, with nothing that goes by its number, such as a slope.
  bool partial_heads = false;
  std::string remedy;  // what a user can do about the rest, ends every refusal: "use attention/name"
};

class DRIVETRAIN_API Attention : public Plugin {
 public:
  static constexpr const char* kKind = "attention";
  ~Attention() override;
  virtual AttentionAbilities abilities() const = 0;
  // Throws Error(config) naming the argument if abilities() does not cover it.
  virtual AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const AttentionArgs& args) const = 0;
  virtual Tensors backward(const at::Tensor& dout, const AttentionState& state,
                           const AttentionArgs& args) const = 0;  // dq, dk, dv
  // Checks the model's shape, dtype and dropout against abilities() and refuses with the reason. Implementations may
  // extend it.
  void plan(PlanContext& ctx) override;

 protected:
  // For the first line of forward: throws Error(config), "name: ...", for shapes that do not fit each other and for
  // what abilities() does not cover.
  void check(const char* name, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
             const AttentionArgs& args) const;
};

}  // namespace drivetrain
