// Attention over sequences that the ranks share, by one plugin of the kind for that, as `bench context` times it.
//
// Owns the plugin and what it makes of the attention; keeps the inputs. Thread: main. Every rank makes the same calls.
#pragma once

#include <drivetrain/attention.h>
#include <drivetrain/mesh.h>
#include <drivetrain/strategy.h>

#include <memory>
#include <string>

#include "bench/rank_alone.h"

namespace drivetrain {

// Inputs and, once an attention ran over all of it, its results. The same numbers on every rank.
struct WholeAttention {
  int64_t batch, heads, groups, head_size, length;
  at::ScalarType dtype;
  at::Tensor q, k, v, dout;  // [B, S, H or G, D]
  at::Tensor out, dq, dk, dv;

  WholeAttention(const BenchArguments& arguments, const at::Device& device);
  std::string text() const;
  AttentionArgs args() const;  // causal
};

class SplitAttention {
 public:
  // `name`: of the plugin, with all ranks. Error(config) if it refuses.
  SplitAttention(const std::string& name, const RankAlone& rank, std::shared_ptr<Attention> inner,
                 const std::shared_ptr<Communicator>& communicator, const WholeAttention& whole);

  const std::string& name() const { return name_; }
  void forward() { state_ = attention_->forward(q_, k_, v_, args_); }
  void both() { forward(), grads_ = attention_->backward(dout_, state_, args_); }
  // Runs both and compares this rank's positions with the whole's. Error(communication) if they are wrong.
  void check(const WholeAttention& whole);

 private:
  std::vector<RowRange> plan(const RankAlone& rank, std::shared_ptr<Attention> inner,
                             const std::shared_ptr<Communicator>& communicator, const WholeAttention& whole);

  std::string name_;
  Services services_;
  std::shared_ptr<Strategy> strategy_;
  std::unique_ptr<Mesh> mesh_;
  std::shared_ptr<Attention> attention_;
  AttentionArgs args_;
  at::Tensor ids_, q_, k_, v_, dout_;  // this rank's positions
  AttentionState state_;
  Tensors grads_;
};

}  // namespace drivetrain
