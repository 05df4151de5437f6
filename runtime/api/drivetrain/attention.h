// Scaled dot-product attention as two functions, forward and backward, without autograd inside. toolkit/layers/attend.h
// makes one differentiable function of them. Hand-written blocks call them directly. Ring attention calls `backward`
// once per block of keys, with the merged out and lse.
//
// Source: Vaswani et al. 2017, eq. 1; Dao et al. 2022 (FlashAttention) for lse. Legend: B batch, S queries, T keys, H
// heads, G key/value heads (H is a multiple of G; query head h uses key/value head h / (H / G)), D head size.
//   q [B, S, H, D]   k, v [B, T, G, D]   out [B, S, H, D]   lse [B, H, S] float32 (float64 for
//   float64 inputs), natural log, -infinity for a query that sees no key (its out is 0)
// Any strides with D contiguous. The object has no state: const calls from any thread, main and autograd's. Stream: the
// current one; nothing is synchronised.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <set>
#include <string>

#include <drivetrain/param.h>
#include <drivetrain/planned_memory.h>
#include <drivetrain/plugin.h>
#include <drivetrain/random.h>

DRIVETRAIN_CONTRACT(attention)

namespace drivetrain {

// Several sequences in a row. All positions are counted through, row after row: position s of row b is b * S + s.
// Positions cu_seqlens[i] to cu_seqlens[i + 1] - 1 attend only to each other, each sequence as if it stood alone.
struct Varlen {
  // From 0 to B * S, strictly ascending, every multiple of S among them; empty: one sequence per row. An attention that
  // wraps another one and has a part of the positions gets those of the whole sequence (Batch::cu_seqlens).
  std::vector<int64_t> cu_seqlens;
};

struct AttentionArgs {
  double scale = 0;      // of the scores; usually 1 / sqrt(D)
  double dropout = 0;    // of the attention probabilities
  bool causal = true;    // query i attends to key j if j <= i + q_offset
  int64_t window = 0;    // 0: none; else also |i + q_offset - j| < window
  int64_t q_offset = 0;  // position of query 0 among the keys
  Varlen varlen;
  // Which query heads of the model the H heads are, in their order; empty: all of them. Set by strategies that cut the
  // heads (tensor parallelism, Ulysses), for an attention that treats heads differently (ALiBi's slopes).
  std::vector<RowRange> heads;
  RandomKey key;  // for dropout; its rows are `heads`
  // Not 0: a score s, already scaled, becomes softcap * tanh(s / softcap), before the mask (Gemma 2).
  double softcap = 0;
};

// What forward returns and backward needs. The caller owns it, and may replace `out` and `lse` by merged ones before
// backward. `extra` belongs to the plugin.
struct AttentionState {
  at::Tensor q, k, v, out, lse;
  Tensors extra;
};

struct AttentionAbilities {
  std::set<int64_t> head_sizes;  // empty: any
  std::set<at::ScalarType> dtypes;
  bool gqa = false, varlen = false, window = false, q_offset = false, dropout = false, non_causal = true;
  bool returns_lse = false, deterministic = true;
  // The plugin may be called with a part of the keys. True means: out is exactly the softmax over the keys it is given;
  // window, bias, sink and mask are only those of the arguments. Results over parts of the keys can then be merged by
  // their lse. False: strategies that cut the sequence refuse this plugin.
  bool partial_keys = false;
  // The plugin may be called with a part of the heads. True means: what a head gives depends on AttentionArgs::heads
  // and not on its index in q. False: strategies that cut the heads refuse this plugin.
  bool partial_heads = false;
  bool softcap = false;
  std::string remedy;  // what a user can do if something is not supported: "use attention/name"; ends every refusal
};

class DRIVETRAIN_API Attention : public Plugin {
 public:
  static constexpr const char* kKind = "attention";
  ~Attention() override;
  // Called any number of times, first in `plan`; always returns the same. Any thread.
  virtual AttentionAbilities abilities() const = 0;
  // Once per layer and forward visit; once more in backward where the region is recomputed. Ring attention calls it
  // once per block of keys. Throws Error(config) that
  // names the argument if abilities() does not cover it. out and lse are new tensors.
  virtual AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const AttentionArgs& args) const = 0;
  // dout is like out. Once per forward that needs gradients; ring attention calls it once per block of keys.
  virtual Tensors backward(const at::Tensor& dout, const AttentionState& state,
                           const AttentionArgs& args) const = 0;  // dq, dk, dv
  // Memory of one call, for the plan. Default: attention_memory(shape), no temporaries.
  virtual AttentionMemory memory(const AttentionShape& shape) const;
  // Checks the model's shape, dtype, dropout, windows and softcap against abilities(), refuses what they do not cover,
  // and offers the abilities. An implementation that overrides it calls it first.
  void plan(PlanContext& ctx) override;

 protected:
  // For the first line of forward. Throws Error(config), "name: ...", if shapes do not fit each other or abilities()
  // does not cover the call.
  void check(const char* name, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
             const AttentionArgs& args) const;
};

}  // namespace drivetrain
