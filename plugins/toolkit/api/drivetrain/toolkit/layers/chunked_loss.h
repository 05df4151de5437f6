// The output layer and its cross entropy as one differentiable function that works on chunks of rows. Each chunk of
// logits is computed once and dropped after its gradient; the logits of all rows never exist together.
//
// Legend: B batch, S positions, D hidden, V columns of the vocabulary on this rank, N rows of one chunk.
// Thread: main; backward on autograd's.
#pragma once

#include <functional>

#include <drivetrain/param.h>

namespace drivetrain {

// The parts of the computation that differ between output layers. Called in the order of the chunks, in the same order
// on every rank, so they may be collective.
struct ChunkedLoss {
  // Returns the loss of a chunk: the float64 scalar sum over the rows that count. With `gradient` it overwrites the
  // logits [N, V] with their gradient; without, it may leave them or overwrite them. labels int64 [N].
  std::function<at::Tensor(at::Tensor& logits, const at::Tensor& labels, bool gradient)> loss_of;
  // Gathers the positions of x from the ranks: [B, part of S, D] -> [B, S, D]. Empty: x has all positions.
  std::function<at::Tensor(const at::Tensor& x)> all_positions = {};
  // Starts the sum of dx [B, S, D] over ranks, and returns a function that waits for it and returns the result. Called
  // before the weight's gradient of the last chunk is computed. Empty: dx needs no sum.
  std::function<std::function<at::Tensor()>(const at::Tensor& dx)> begin_sum = {};
};

// x [B, S, D], weight [V, D], labels int64 [B, S]. Returns the float64 scalar sum of the chunks' losses. If a backward
// pass follows, loss and gradients are computed in it; until then the scalar is NaN. The weight's gradient is written
// to its slot.
at::Tensor chunked_loss(const at::Tensor& x, const ParamPtr& weight, const at::Tensor& labels, ChunkedLoss parts);

}  // namespace drivetrain
