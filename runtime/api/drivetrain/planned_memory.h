// What a run's memory is for, told before anything is allocated. Whoever keeps or takes memory says how much: units and
// attention by the shape of one visit, storage owners by the units of a stage. The plan puts it together along the
// schedule's program.
//
// A plugin's class says it by deriving from one of the classes below beside its kind's. One that does not is counted by
// what every class of its kind has. All calls come after Recompute::choose, for every pipeline stage, and always return
// the same. Thread: main.
#pragma once

#include <c10/core/ScalarType.h>

#include <functional>
#include <map>
#include <string_view>

#include <drivetrain/step_context.h>

DRIVETRAIN_CONTRACT(planned_memory)

namespace drivetrain {

class Attention;
class AttentionLayer;
class Mesh;
class PlanContext;
struct UnitList;

// Tensors that live at the same time, by their sizes, since allocators round up each one.
class DRIVETRAIN_API TensorSizes {
 public:
  // `count` tensors of so many bytes each. A negative count: these are free again.
  TensorSizes& add(double bytes, double count = 1);
  TensorSizes& add(const TensorSizes& others, double times = 1);
  double bytes() const;
  const std::map<double, double>& counts() const { return counts_; }  // of a size in bytes, how many

 private:
  std::map<double, double> counts_;
};

// One visit of a unit: a micro-batch on one rank. Tokens are rows times positions.
struct VisitShape {
  double tokens = 0;                                     // inside of layers
  double rank_tokens = 0;                                // between layers: fewer under sequence parallelism
  double rows = 0;                                       // of the micro-batch
  int64_t layer_ranks = 1;                               // that share every layer
  at::ScalarType dtype = at::kFloat, grad = at::kFloat;  // of activations; of gradients of parameters
  bool on_cpu = true;
  double element() const { return static_cast<double>(c10::elementSize(dtype)); }
  double positions() const { return rows > 0 ? tokens / rows : 0; }
};

// What a visit takes, with its inputs; its outputs are the next unit's.
struct VisitMemory {
  TensorSizes kept;     // from its forward to its backward
  TensorSizes working;  // the most at one time in its backward beside that, gradients that come in and go out included
  TensorSizes inputs;   // all that is kept if the whole unit is recomputed
};
// What the recompute policy keeps of a region of the unit.
using KeepOfRegion = std::function<Keep(std::string_view region)>;

class DRIVETRAIN_API TakesVisitMemory {
 public:
  virtual ~TakesVisitMemory();
  virtual VisitMemory visit_memory(const VisitShape& shape, const KeepOfRegion& keep) const = 0;
};

// One call of an attention on one rank: q [rows, queries, heads, head_dim], k and v [rows, keys, groups, head_dim].
struct AttentionShape {
  double rows = 0, queries = 0, keys = 0, heads = 0, groups = 0, head_dim = 0;
  at::ScalarType dtype = at::kFloat;
  bool dropout = false, on_cpu = true;
  double element() const { return static_cast<double>(c10::elementSize(dtype)); }
  double query_bytes() const { return rows * queries * heads * head_dim * element(); }
  double key_bytes() const { return rows * keys * groups * head_dim * element(); }  // of k, and of v
  double lse_bytes() const { return rows * queries * heads * (dtype == at::kDouble ? 8 : 4); }
};
struct AttentionMemory {
  TensorSizes kept;               // AttentionState, with q, k, v and out
  TensorSizes forward, backward;  // the most at one time beside kept and dout; what is returned counts
};

class DRIVETRAIN_API TakesAttentionMemory {
 public:
  virtual ~TakesAttentionMemory();
  virtual AttentionMemory attention_memory(const AttentionShape& shape) const = 0;
};
// What the attention, or the layer around it, says; for one that says nothing q, k, v, out, lse and the gradients.
DRIVETRAIN_API AttentionMemory attention_memory(const Attention& attention, const AttentionShape& shape);
DRIVETRAIN_API AttentionMemory attention_memory(const AttentionLayer& layer, const AttentionShape& shape);

// For strategies, storage owners first of all: what a rank holds because of the units that it has.
struct PlannedStage {
  const UnitList& units;  // of the stage, on the meta device
  const Mesh& mesh;
  bool one_memory = false;  // see HasOneMemory
};
class DRIVETRAIN_API HoldsUnits {
 public:
  virtual ~HoldsUnits();
  // After `plan`, with the facts of the stage's ranks in `ctx`. Declares memory (PlanContext::memory, host_memory) and
  // updates (updates, updates_on_host); what `plan` declared of these does not count then.
  virtual void plan_units(PlanContext& ctx, const PlannedStage& stage) const = 0;
};

// For communicators whose groups have one memory for all their ranks (Group::allocate_once). Each rank's share of it is
// planned, and measured.
class DRIVETRAIN_API HasOneMemory {
 public:
  virtual ~HasOneMemory();
  virtual bool has_one_memory() const = 0;
};

// For optimizers that take host memory beside their state where they update values of the host whose parameters are on
// a device, as for copies in the type in which they are sent.
class DRIVETRAIN_API TakesHostMemory {
 public:
  virtual ~TakesHostMemory();
  // Bytes per element that an update has. `param`: the parameters' type. Called once per stage, where a plugin said
  // PlanContext::updates_on_host with `to_device`, and counted only there.
  virtual double host_bytes_per_element(at::ScalarType param) const = 0;
};

// For recompute policies whose Recompute::hold may put inputs elsewhere. Any other policy leaves them on
// the device.
class DRIVETRAIN_API MovesInputs {
 public:
  virtual ~MovesInputs();
  virtual bool leaves_inputs_on_device() const = 0;  // known once it is made
};

}  // namespace drivetrain
