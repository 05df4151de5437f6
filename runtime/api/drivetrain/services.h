// What the runtime passes to the constructor of every plugin. Plugins use no globals and read no environment variables,
// since ranks may be threads of one process. Valid as long as the plugin object. Thread: as each member's header says.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include <drivetrain/log.h>
#include <drivetrain/plugin.h>
#include <drivetrain/store.h>

DRIVETRAIN_CONTRACT(services)

namespace drivetrain {

class Mesh;

// The data types of the run: parameters and activations, stored gradients, sums of gradients over ranks, master
// weights.
struct Dtypes {
  at::ScalarType param = at::kFloat, grad = at::kFloat, reduce = at::kFloat, master = at::kFloat;
};

struct Services {
  Log& log;
  Store& store;
  int64_t rank = 0, world_size = 1;
  int64_t local_rank = 0, local_size = 1;  // index and number of ranks on this host
  at::Device device = at::Device(at::kCPU);
  uint64_t seed = 0;
  Dtypes dtypes = {};          // set before the first `plan`
  const Mesh* mesh = nullptr;  // set before Strategy::build; null before that
};

}  // namespace drivetrain
