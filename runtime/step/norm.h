// The global gradient norm, the same bits under every sharding and any number of pipeline stages: squares are added in
// fixed blocks of kNormBlock elements of each parameter, a parameter's block sums in order to one number in float64,
// these in order of parameter. On a device all of it is enqueued; the host reads nothing.
#pragma once

#include <drivetrain/mesh.h>
#include <drivetrain/optimizer.h>
#include <drivetrain/toolkit/ops/device_list.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "internal.h"
#include "kernels/optimizer/square_sum.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL GradNorm {
 public:
  // `order`: the parameters of the whole model, the same list on every rank, however `chunks` arranges those of this
  // one. Those of other pipeline stages are in no chunk; of a parameter that several stages hold, the first counts it
  // and for the others it is among `counted_elsewhere`, by name. Makes groups of `mesh`.
  GradNorm(const std::vector<Trainables>& chunks, const std::vector<ParamPtr>& order, const Mesh& mesh,
           const at::Device& device, const std::set<std::string>& counted_elsewhere = {});

  // out, a float64 scalar on the device := sum of squares over the whole model. Collective where gradients are sharded
  // or there are several stages. `chunks`: those of the constructor.
  void sum_of_squares(const std::vector<Trainables>& chunks, const at::Tensor& out);

  // Name of the first parameter whose gradient, on any rank, was not finite in the last call; empty if all were. The
  // same on every rank, of whatever stage. Waits for the device.
  std::string first_not_finite() const;

 private:
  // This rank's blocks of one trainable.
  struct Piece {
    int64_t first = 0, blocks = 0;
  };
  // Block sums of all parameters that share one set of axes, a slice of blocks_: summed over those axes, since every
  // rank fills its own.
  struct Table {
    std::vector<std::string> axes;
    GroupPtr group;  // null: of one rank
    int64_t blocks = 0;
    at::Tensor sums;
  };
  // Where the blocks of one parameter stand.
  struct Place {
    size_t table = 0;
    int64_t first = 0, blocks = 0;  // of all ranks, in the table; then in blocks_
    int64_t own = 0;                // the first of this rank's tensor-parallel piece
  };
  using Places = std::map<const Param*, Place>;
  Place place(const Trainable& t, const Mesh& mesh);
  void lay_out_tables(Places& places, const at::Device& device);
  static Piece piece_of(const Trainable& t, const Places& places);
  void fill_blocks_of(const std::vector<Trainables>& chunks);
  void note_params(const std::vector<ParamPtr>& order, const Places& places, const at::Device& device);

  std::vector<std::string> names_;  // of `order`
  std::vector<Piece> pieces_;       // in order of chunks and trainables
  std::vector<Table> tables_;
  GroupPtr stages_;    // null: one
  at::Tensor blocks_;  // float64, on the device: the tables one after another
  at::Tensor first_;   // int64, on the device: where in blocks_ those of each parameter begin
  at::Tensor count_;   // int64, on the device: how many; other stages' have none
  at::Tensor params_;  // float64, on the device: the sum of squares of each parameter
  std::map<at::ScalarType, DeviceList<kernels::SquareSegment>> lists_;  // of gradients on a device
};

}  // namespace drivetrain
