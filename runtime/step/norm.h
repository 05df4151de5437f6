// The global gradient norm, the same bits under every sharding: squares are added in fixed blocks of kNormBlock elements of
// each parameter, block sums in float64 in order of parameter and block. On a device all of it is enqueued; the host reads nothing.
#pragma once

#include <drivetrain/mesh.h>
#include <drivetrain/optimizer.h>

#include <vector>

namespace drivetrain {

class GradNorm {
 public:
  // Blocks are added in order of `order`, the model's parameters, however `chunks` arranges them.
  GradNorm(const std::vector<Trainables>& chunks, const std::vector<ParamPtr>& order, const Mesh& mesh, const at::Device& device);

  // out, a float64 scalar on the device := sum of squares over the whole model. Collective where gradients are shared out.
  void sum_of_squares(const std::vector<Trainables>& chunks, const at::Tensor& out);

  // Name of the first parameter whose gradient, on any rank, was not finite in the last call; empty if all were. Waits for the device.
  std::string first_not_finite() const;

 private:
  // Where the blocks of one parameter stand.
  struct Place {
    ParamPtr param;
    int64_t table = 0, first = 0, blocks = 0;  // of all ranks
    int64_t own = 0;                           // the first of this rank's tensor-parallel piece
  };
  struct Piece {
    int64_t table = 0;   // index of the table
    int64_t first = 0;   // this rank's first block in it
    int64_t blocks = 0;
  };
  // Block sums of all parameters that share one set of axes; summed over those axes, since every rank fills its own.
  struct Table {
    std::vector<std::string> axes;
    at::Tensor sums;  // float64, on the device
    int64_t blocks = 0;
    GroupPtr group;
  };
  void place(const Trainable& t, const Mesh& mesh);

  std::vector<Place> places_;  // in order of parameters
  std::vector<Piece> pieces_;  // in order of chunks and trainables
  std::vector<Table> tables_;
};

}  // namespace drivetrain
