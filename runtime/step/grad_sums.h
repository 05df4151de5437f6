// What is left of summing gradients once the storage owner has summed its part of them over the ranks that read
// different rows: partial sums over other axes (norm weights where ranks share the sequence), copies of one parameter
// on several pipeline stages. Numbers do not depend on when it runs, sums are the groups' own, in their fixed order.
//
// Holds the trainables' gradient tensors. Memory: one float32 copy of the gradients of partial sums. Thread: main. All
// of it is enqueued.
#pragma once

#include <drivetrain/mesh.h>
#include <drivetrain/optimizer.h>

#include <map>
#include <string>
#include <vector>

#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL GradSums {
 public:
  // Trainables whose layout is partial over axes of several ranks, and those named in `tied`, with the group of the
  // stages that hold copies. All ranks of such a group hold the same flat ranges. Makes groups of `mesh`.
  GradSums(const std::vector<Trainables>& chunks, const Mesh& mesh, const std::map<std::string, GroupPtr>& tied);

  // After Strategy::flush_grads, in every step. Collective.
  void run();

 private:
  // Gradients that are summed over the same ranks.
  struct Shared {
    GroupPtr group;
    std::vector<at::Tensor> grads;
    at::Tensor buffer;  // of partial sums, which are joined
  };
  // A gradient that the optimizer reads on another device.
  struct Copy {
    at::Tensor from, to;
  };
  void add_partial(const Trainable& t, const Mesh& mesh);
  void sum_partials();
  void sum_tied();

  std::map<std::vector<std::string>, Shared> partials_;  // by axes
  std::map<std::string, Shared> tied_;                   // by name: the same order on all stages
  std::vector<Copy> copies_;
};

}  // namespace drivetrain
