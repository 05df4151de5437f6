// The output layer and its cross entropy as one differentiable function, chunk of rows by chunk: a chunk of logits
// lives once, from the product to its gradient, and the whole of them never exists.
//
// Legend: B batch, S positions, D hidden, V columns of the vocabulary on this rank, N rows of one chunk.
// Thread: main; backward on autograd's.
#pragma once

#include <functional>

#include <drivetrain/param.h>

namespace drivetrain {

// What an output layer adds to the plain one. Called in the order of the chunks, on every rank alike.
struct ChunkedLoss {
  // The loss of a chunk: the float64 scalar sum over the rows that count. With `gradient` the logits [N, V] become the
  // gradient of that sum by them; without, they may be left as they are. labels int64 [N].
  std::function<at::Tensor(at::Tensor& logits, const at::Tensor& labels, bool gradient)> loss_of;
  // All positions of x where ranks hold parts of them: [B, part of S, D] -> [B, S, D]. Empty: x as it is.
  std::function<at::Tensor(const at::Tensor& x)> all_positions = {};
  // Begins what makes dx [B, S, D] whole over ranks, and returns what finishes it. Called before the weight's gradient
  // of the last chunk is computed. Empty: dx is whole.
  std::function<std::function<at::Tensor()>(const at::Tensor& dx)> begin_sum = {};
};

// x [B, S, D], weight [V, D], labels int64 [B, S]. Returns the float64 scalar sum of the chunks' losses. Where a
// backward pass follows, loss and gradients are computed in it, and the scalar is not a number until then; the weight's
// gradient goes to its slot.
at::Tensor chunked_loss(const at::Tensor& x, const ParamPtr& weight, const at::Tensor& labels, ChunkedLoss parts);

}  // namespace drivetrain
