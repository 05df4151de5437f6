// How keys and values come to the ranks whose queries see them, and their gradients home.
//
// In step s rank r gets what it sees of rank r - s, and has gradients for it. Without a window that is half of all
// that there is, and tensors go round the ring, each from its neighbour. With a window it is little, or nothing, and
// mostly of the ranks that have the chunks next in the sequence, one on either side: what is seen goes straight to who
// sees it, and its gradients straight back. Either way a key's gradients are added in the order of the steps. One
// object per call of the attention. Thread and stream: those of the exchanges.
#pragma once

#include <memory>

#include "blocks.h"
#include "parcels.h"
#include "ring_exchange.h"

namespace drivetrain::ring {

// What calls have in common: a rank's memory for what is on its way.
struct Exchanges {
  explicit Exchanges(const GroupPtr& group)
      : index(group->rank()), ranks(group->size()), keys(group), gradients(group), seen(group), returned(group) {}

  const int64_t index, ranks;
  RingExchange keys, gradients;  // [2, B, T, G, D]: k and v
  Parcels seen, returned;        // k and v of blocks, and their gradients
};

class Travel {
 public:
  virtual ~Travel() = default;
  // For step 1, 2, ... up to ranks - 1, in turn: k and v of each block of this rank's queries, in the blocks' order.
  virtual Tensors arrived(int64_t step, const std::vector<Block>& blocks) = 0;
  // Their gradients, in the same order; after arrived(step).
  virtual void give(int64_t step, const std::vector<Block>& blocks, const Tensors& found) = 0;
  // After the last give: the sums of what others gave for this rank's k and v, in the wide type.
  virtual Tensors home() = 0;
};

// Start keys and values [B, T, G, D] of this rank on their way. `shape` and the exchanges outlive it.
std::unique_ptr<Travel> travel_round(Exchanges& exchanges, const at::Tensor& k, const at::Tensor& v);
std::unique_ptr<Travel> travel_straight(Exchanges& exchanges, const at::Tensor& k, const at::Tensor& v,
                                        const RingShape& shape);

// The columns of a block: of x [B, T, ...], or along `dimension`.
at::Tensor rows_of(const at::Tensor& x, const RowRange& rows, int64_t dimension, const RowRange& columns);
// float32, float64 for float64: what gradients are added in.
at::ScalarType wide_type(const at::Tensor& x);

}  // namespace drivetrain::ring
