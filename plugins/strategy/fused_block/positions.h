// Rotary tables by position, shared by the blocks of a model. Main thread.
#pragma once

#include <vector>

#include <drivetrain/ops.h>
#include <drivetrain/random.h>

namespace drivetrain::fused_block {

class Positions {
 public:
  // cos and sin of these positions of the whole sequence, in their order; undefined without frequencies. One range
  // costs a view; several are put together once.
  ops::RotaryTable table(const std::vector<double>& frequencies, const std::vector<RowRange>& positions,
                         const at::Tensor& like);

 private:
  struct Cut {
    std::vector<RowRange> positions;
    ops::RotaryTable table;
  };

  void reach(int64_t end, const at::Tensor& like);

  std::vector<double> frequencies_;
  ops::RotaryTable longest_;  // of all positions so far, of the last dtype and device
  std::vector<Cut> cuts_;     // of several ranges; never dropped, since a recorded step reads what it found
};

}  // namespace drivetrain::fused_block
