// Everything that acts around model execution derives from Strategy and overrides the hooks it needs. See the table in
// plugins/README.md ("The hooks"). Kinds nest like an onion, outermost first:
// schedule, data_parallel, recompute, context_parallel, tensor_parallel, precision, attention, strategy; of one kind,
// as the configuration lists them. `plan`, the "before" hooks and `after_update` run outermost first; `build`,
// `attach`, the "after" hooks, `values_done` and `flush_grads` innermost first. Thread: main.
//
// A schedule may split a unit's backward in two halves, with other work between them: the first makes gradients of the
// unit's inputs (and may write some of its parameters' gradients), the second the rest. The hooks of a backward visit:
//
//                      whole backward   inputs' half   weights' half
//   before_backward         1st              1st
//   before_grads            2nd              2nd            1st
//   after_backward          3rd                             2nd
//   values_done             4th              3rd
//
// A strategy that does not read Visit::part is right under both. Between the halves of one micro-batch both halves of
// others may run.
#pragma once

#include <drivetrain/layers.h>
#include <drivetrain/optimizer.h>
#include <drivetrain/plan_context.h>
#include <drivetrain/plugin.h>
#include <drivetrain/services.h>
#include <drivetrain/state.h>
#include <drivetrain/unit.h>

DRIVETRAIN_CONTRACT(strategy)

namespace drivetrain {

// What `build` may wrap before the model is built on the meta device.
// No rank waits for another in it: the mesh's groups are asked for in `attach` or later.
class DRIVETRAIN_API Builder {
 public:
  // Takes positions of the sequence, returns those of them that are this rank's, in its order.
  using SequenceCut = std::function<std::vector<RowRange>(const std::vector<RowRange>&)>;
  // Takes the attention that is there, returns the one around it, which keeps it.
  using AttentionWrap = std::function<std::shared_ptr<Attention>(std::shared_ptr<Attention> inner)>;

  // The runtime's: `attention` is the chosen plugin, or null. `mesh` and `facts` outlive the builder.
  Builder(std::shared_ptr<LayerFactory> layers, std::shared_ptr<Attention> attention, const Mesh& mesh,
          const ModelFacts& facts);
  ~Builder();

  std::shared_ptr<LayerFactory> layers;
  const Mesh& mesh;
  const ModelFacts& facts;
  std::vector<SequenceCut> batch_cuts = {};       // of tokens and labels, one after another
  std::vector<SequenceCut> activation_cuts = {};  // after them, of what goes from layer to layer

  // What layers call: the run's attention with everything that strategies put around it, before this call or after it.
  // May be copied at any time and kept. Its forward throws Error(internal) until `build` of all strategies is over.
  std::shared_ptr<Attention> attention() const;
  // Puts an attention around the one that is there. `wrap` is called at once. Error(plugin) if it returns null.
  void wrap_attention(const AttentionWrap& wrap);

  // The runtime's, once `build` of all strategies is over: from here on attention() computes. Returns the outermost
  // one, null where there is none.
  std::shared_ptr<Attention> finish_attention();

 private:
  class LateAttention;
  std::shared_ptr<LateAttention> attention_;
};

class DRIVETRAIN_API Strategy : public Plugin {
 public:
  static constexpr const char* kKind = "strategy";
  ~Strategy() override;

  virtual void build(Builder&) {}    // once, before the model is built
  virtual void attach(UnitList&) {}  // take over storage, once; the mesh is in Services
  virtual void step_begin(StepContext&) {}
  virtual void before_forward(const Visit&, StepContext&) {}
  virtual void after_forward(const Visit&, StepContext&) {}
  // The unit is about to compute with its parameters' values.
  virtual void before_backward(const Visit&, StepContext&) {}
  // Gradients are about to be written to the slots of the unit's parameters. A sum over ranks that still reads them is
  // waited for here.
  virtual void before_grads(const Visit&, StepContext&) {}
  // This visit's gradients are in their slots, added to what was there unless Param::restart_grad was called since.
  // A parameter that got none since then has a slot of zeros.
  virtual void after_backward(const Visit&, StepContext&) {}
  // The visit does not read the values of the unit's parameters any more.
  virtual void values_done(const Visit&, StepContext&) {}
  // on return, this strategy's part of every gradient is final
  virtual void flush_grads(StepContext&) {}
  virtual void after_update(Trainables& chunk, StepContext&) {}  // these have new values; spread them
  virtual void step_end(StepContext&) {}
  // What this strategy keeps from step to step. Values that trainables() shows are visited by the runtime.
  virtual void state(StateVisitor&) {}
};

}  // namespace drivetrain
