// What the runtime passes to the constructor of every plugin. Plugins use no globals and read no environment variables,
// since ranks may be threads of one process. Valid as long as the plugin object. Thread: as each member's header says.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

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

// Creates plugins that options name (PluginChoice). Thread: main.
class DRIVETRAIN_API PluginMaker {
 public:
  virtual ~PluginMaker();
  // Owned by the caller, who calls it as the kind's header says; the runtime does not plan it or save its state.
  // `Kind`: a class of a kind's header. Error(config) if options are wrong, Error(plugin) if there is no such plugin.
  template <class Kind>
  std::shared_ptr<Kind> create(const PluginChoice& choice) const {
    return std::static_pointer_cast<Kind>(create_kind(Kind::kKind, choice));
  }

 protected:
  virtual std::shared_ptr<Plugin> create_kind(const char* kind, const PluginChoice& choice) const = 0;
};

struct Services {
  Log& log;
  Store& store;
  int64_t rank = 0, world_size = 1;
  int64_t local_rank = 0, local_size = 1;  // index and number of ranks on this host
  at::Device device = at::Device(at::kCPU);
  uint64_t seed = 0;
  Dtypes dtypes = {};                    // set before the first `plan`
  const Mesh* mesh = nullptr;            // set before Strategy::build; null before that
  const PluginMaker* plugins = nullptr;  // null in tests without a registry
  bool recorded = false;                 // whether steps are recorded (PlanContext::capturable); set as `mesh` is
};

}  // namespace drivetrain
