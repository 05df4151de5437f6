// Whole parameters from the parts that ranks hold - cut by dimension, by flat range, over pipeline stages - bit for bit
// (-0.0 and NaN included): for what is written in one piece.
//
// Keeps references to the parts. Memory: one parameter beyond them at a time. Thread: main. Errors: Error(internal)
// where the parts of all ranks are not the whole.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <drivetrain/mesh.h>
#include <drivetrain/optimizer.h>

#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL ParamGather {
 public:
  // `pieces`: param, value (any floating dtype and device) and layout of all that this rank holds, empty ones included.
  // `params`: all of the whole model, the same list on every rank; those of other pipeline stages have a layout only.
  // `device`: where the groups of `mesh` move tensors; `mesh` outlives this. Moves nothing.
  ParamGather(const std::vector<Trainables>& pieces, const std::vector<ParamPtr>& params, const Mesh& mesh,
              const at::Device& device);

  // Of every parameter, whole.
  const std::map<std::string, std::vector<int64_t>>& shapes() const { return shapes_; }

  // Whether `whole` asks other ranks for parts; without it this rank holds everything.
  // The same on all ranks of a stage.
  bool needs_peers() const;

  // A parameter in float32 and its shape, to be read only. Collective: every rank asks for the same parameters in the
  // same order.
  at::Tensor whole(const std::string& param) const;

 private:
  void add(const Trainable& piece);
  int64_t holder_of(const std::string& param) const;
  at::Tensor of_this_stage(const std::string& param) const;
  at::Tensor joined(const std::string& param, const std::vector<Trainable>& pieces, Group& group) const;

  const Mesh& mesh_;
  const at::Device device_;
  std::map<std::string, std::vector<int64_t>> shapes_;
  std::map<std::string, std::vector<Trainable>> pieces_;
  mutable std::map<std::string, int64_t>
      holders_;  // the first stage that holds it; exchanged by the first call of whole()
};

}  // namespace drivetrain
