// Data by which plugins and units declare their memory before the run allocates any. Virtual functions of the kinds
// take and return them: Unit::visit_memory, Attention::memory, AttentionLayer::memory, Strategy::plan_units,
// Communicator::has_one_memory, Optimizer::host_bytes_per_element, Recompute::leaves_inputs_on_device. Each has a
// default for classes that declare nothing; a class that wraps another one forwards the call. The plan adds up what
// they return along the schedule's program.
//
// All these calls come after Recompute::choose, for every pipeline stage, and always return the same. Thread: main.
#pragma once

#include <c10/core/ScalarType.h>

#include <functional>
#include <map>
#include <string_view>

#include <drivetrain/step_context.h>

DRIVETRAIN_CONTRACT(planned_memory)

namespace drivetrain {

class Mesh;
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
  int64_t tensor_ranks = 1;                              // that share every layer
  at::ScalarType dtype = at::kFloat, grad = at::kFloat;  // of activations; of gradients of parameters
  bool on_cpu = true;
  double element() const { return static_cast<double>(c10::elementSize(dtype)); }
  double positions() const { return rows > 0 ? tokens / rows : 0; }
};

// Memory of one visit. Inputs count here, outputs in the next unit.
struct VisitMemory {
  TensorSizes kept;     // from its forward to its backward
  TensorSizes working;  // peak of temporaries of a pass, on top of `kept`; includes incoming and outgoing gradients
  TensorSizes inputs;   // all that is kept if the whole unit is recomputed
};
// What the recompute policy keeps of a region of the unit.
using KeepOfRegion = std::function<Keep(std::string_view region)>;

// One call of an attention on one rank: q [rows, queries, heads, head_dim], k and v [rows, keys, groups, head_dim].
struct AttentionShape {
  double rows = 0, queries = 0, keys = 0, heads = 0, groups = 0, head_dim = 0;
  at::ScalarType dtype = at::kFloat;
  bool dropout = false, on_cpu = true;
  double window = 0;  // AttentionArgs::window, 0: none
  bool softcap = false;
  double element() const { return static_cast<double>(c10::elementSize(dtype)); }
  double query_bytes() const { return rows * queries * heads * head_dim * element(); }
  double key_bytes() const { return rows * keys * groups * head_dim * element(); }  // of k, and of v
  double lse_bytes() const { return rows * queries * heads * (dtype == at::kDouble ? 8 : 4); }
};
// Memory of one such call. What it returns counts.
struct AttentionMemory {
  TensorSizes kept;               // AttentionState, with q, k, v and out
  TensorSizes forward, backward;  // peak of each, on top of `kept` and dout
};
// Of an attention without temporaries: q, k, v, out, lse and the gradients.
DRIVETRAIN_API AttentionMemory attention_memory(const AttentionShape& shape);

// The argument of Strategy::plan_units.
struct PlannedStage {
  const UnitList& units;  // of the stage, on the meta device
  const Mesh& mesh;
  bool one_memory = false;  // Communicator::has_one_memory
};

}  // namespace drivetrain
