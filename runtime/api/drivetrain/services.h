// What the runtime hands every plugin at creation. No globals, no environment reads in plugins: ranks can be threads.
// Valid as long as the plugin object. Thread: each member says its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include <drivetrain/log.h>
#include <drivetrain/plugin.h>
#include <drivetrain/store.h>

DRIVETRAIN_CONTRACT(services)

namespace drivetrain {

class Mesh;

// What is stored and computed in which type. `reduce` is what gradients are summed over ranks in.
struct Dtypes {
  at::ScalarType param = at::kFloat, grad = at::kFloat, reduce = at::kFloat, master = at::kFloat;
};

struct Services {
  Log& log;
  Store& store;
  int64_t rank = 0, world_size = 1;
  int64_t local_rank = 0, local_size = 1;  // among the ranks of this host
  at::Device device = at::Device(at::kCPU);
  uint64_t seed = 0;
  Dtypes dtypes = {};          // set before `attach`
  const Mesh* mesh = nullptr;  // set before `build`; null while plugins are created and planned
};

}  // namespace drivetrain
