// Everything that acts around model execution derives from Strategy and overrides the hooks it needs. See the table in
// the README ("The hooks"). Kinds nest like an onion, outermost first:
// schedule, data_parallel, recompute, context_parallel, tensor_parallel, precision, attention, strategy; of one kind,
// as the configuration lists them. `plan`, the "before" hooks and `after_update` run outermost first; `build`,
// `attach`, the "after" hooks and `flush_grads` innermost first. Thread: main.
#pragma once

#include <drivetrain/layers.h>
#include <drivetrain/optimizer.h>
#include <drivetrain/plan_context.h>
#include <drivetrain/plugin.h>
#include <drivetrain/services.h>
#include <drivetrain/unit.h>

DRIVETRAIN_CONTRACT(strategy)

namespace drivetrain {

// What `build` may wrap before the model is built on the meta device.
// No rank waits for another in it: the mesh's groups are asked for in `attach` or later.
struct Builder {
  // Takes positions of the sequence, returns those of them that are this rank's, in its order.
  using SequenceCut = std::function<std::vector<RowRange>(const std::vector<RowRange>&)>;

  std::shared_ptr<LayerFactory> layers;
  std::shared_ptr<Attention> attention;
  const Mesh& mesh;
  const ModelFacts& facts;
  std::vector<SequenceCut> batch_cuts = {};       // of tokens and labels, one after another
  std::vector<SequenceCut> activation_cuts = {};  // after them, of what goes from layer to layer
};

class DRIVETRAIN_API Strategy : public Plugin {
 public:
  static constexpr const char* kKind = "strategy";
  ~Strategy() override;

  virtual void build(Builder&) {}
  virtual void attach(UnitList&) {}  // take over storage, once; the mesh is in Services
  virtual void step_begin(StepContext&) {}
  virtual void before_forward(const Visit&, StepContext&) {}
  virtual void after_forward(const Visit&, StepContext&) {}
  virtual void before_backward(const Visit&, StepContext&) {}
  virtual void after_backward(const Visit&, StepContext&) {}  // this visit's gradients are in their slots
  // on return, this strategy's part of every gradient is final
  virtual void flush_grads(StepContext&) {}
  virtual void after_update(Trainables& chunk, StepContext&) {}  // these have new values; spread them
  virtual void step_end(StepContext&) {}
  virtual void state(StateVisitor&) {}
};

}  // namespace drivetrain
