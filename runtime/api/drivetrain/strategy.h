// Base of every plugin that acts around the execution of the model. It overrides the hooks that it needs; the table in
// plugins/README.md ("The hooks") shows what the built-in strategies do in them.
//
// Order of plugins, outermost first: schedule, data_parallel, recompute, context_parallel, tensor_parallel,
// expert_parallel, precision, attention, strategy; plugins of one kind in the order of the configuration. The section
// of a strategy may move it out: `"outside_of": "KIND"` puts it directly outside of the plugins of that kind. `plan`,
// `step_begin`, the before hooks and `after_update` run outermost first. `build`, `attach`, the after hooks,
// `values_done`, `flush_grads` and `step_end` run innermost first.
//
// All hooks run on the main thread, in the same order on all ranks of a pipeline stage, so they may be collective. Work
// goes to the current stream. The StepContext is valid during the call. An exception ends the run.
// Order in a step: step_begin; the hooks of each visit; flush_grads; after_update once per list of trainables, unless
// the update is skipped; step_end. An evaluation calls before_forward and after_forward only. A step that is replayed
// as a CUDA graph calls only step_begin and step_end.
//
// A schedule may split a unit's backward into two halves, with other work between them. The first half computes the
// gradients of the unit's inputs (and may write some of its parameters' gradients), the second half the rest. Between
// the halves of one micro-batch both halves of others may run. The hooks of a backward visit:
//
//                      whole backward   inputs' half   weights' half
//   before_backward         1st              1st
//   before_grads            2nd              2nd            1st
//   after_backward          3rd                             2nd
//   values_done             4th              3rd
//
// A strategy that does not read Visit::part is correct in both cases.
#pragma once

#include <drivetrain/layers.h>
#include <drivetrain/optimizer.h>
#include <drivetrain/plan_context.h>
#include <drivetrain/planned_memory.h>
#include <drivetrain/plugin.h>
#include <drivetrain/services.h>
#include <drivetrain/state.h>
#include <drivetrain/unit.h>
#include <drivetrain/weight_rules.h>

DRIVETRAIN_CONTRACT(strategy)

namespace drivetrain {

// What Strategy::build may change before the model is built on the meta device. Valid during `build`; attention() may
// be kept. `build` is not collective: use the groups of the mesh in `attach` or later.
class DRIVETRAIN_API Builder {
 public:
  // Takes positions of the sequence; returns those that this rank keeps, in the rank's order, as many on every rank.
  // `cu_seqlens`: of the batch that is cut (Batch::cu_seqlens); empty in a plan, and where rows have one document. A
  // pure function. Thread: any.
  using SequenceCut = std::function<std::vector<RowRange>(const std::vector<RowRange>& positions,
                                                          const std::vector<int64_t>& cu_seqlens)>;
  // Takes the current attention; returns one that wraps it and keeps `inner`.
  using AttentionWrap = std::function<std::shared_ptr<Attention>(std::shared_ptr<Attention> inner)>;

  // For the runtime. `attention`: the chosen plugin, or null. `mesh` and `facts` outlive the builder.
  Builder(std::shared_ptr<LayerFactory> layers, std::shared_ptr<Attention> attention, const Mesh& mesh,
          const ModelFacts& facts);
  ~Builder();

  std::shared_ptr<LayerFactory> layers;  // replace it by a decorator that holds the current one
  const Mesh& mesh;
  const ModelFacts& facts;
  std::vector<SequenceCut> batch_cuts = {};       // of tokens and labels, in this order; append to it
  std::vector<SequenceCut> activation_cuts = {};  // of activations between layers, after batch_cuts; append to it
  // Model::weight_rules of the chosen model: under which names its parameters stand in other formats ("hf"), for
  // strategies whose options or files name tensors as others do. Null where there is no model (tests of layers).
  std::function<WeightRules(const std::string& format)> weight_rules = {};

  // The attention that layers call: the run's plugin with all wraps, including wraps that are added after this call.
  // May be kept. forward and backward throw Error(internal) until `build` of all strategies has returned.
  std::shared_ptr<Attention> attention() const;
  // Wraps the current attention. `wrap` is called at once. Error(plugin) if it returns null, or after `build`.
  void wrap_attention(const AttentionWrap& wrap);

  // For the runtime, after `build` of all strategies: from now on attention() computes. Returns the outermost
  // attention, or null without an attention plugin.
  std::shared_ptr<Attention> finish_attention();

 private:
  class LateAttention;
  std::shared_ptr<LateAttention> attention_;
};

class DRIVETRAIN_API Strategy : public Plugin {
 public:
  static constexpr const char* kKind = "strategy";
  ~Strategy() override;

  // Once per run, before Model::build. Decorates layers, attention and batches. Not collective.
  virtual void build(Builder&) {}
  // What a rank holds because of the units that it has, for the plan; for storage owners first of all. Once per
  // pipeline stage, after `plan`, with the facts of the stage's ranks in `ctx`. Declares memory (PlanContext::memory,
  // host_memory) and updates (updates, updates_on_host). Returns whether it did: if true, what `plan` declared of these
  // does not count. Default: nothing is declared, what `plan` declared counts.
  virtual bool plan_units(PlanContext& ctx, const PlannedStage& stage) const { return false; }
  // Once per run, after the last `plan`, with the units of this rank's stage. The storage owner gives parameters memory
  // here; others make their groups (Services::mesh). Until then parameters are on the meta device.
  virtual void attach(UnitList&) {}
  // Once per training step, before the first visit. visit() and ahead() describe the whole step.
  virtual void step_begin(StepContext&) {}
  // Once per forward visit of a unit. From here to after_forward the values of its parameters are complete.
  virtual void before_forward(const Visit&, StepContext&) {}
  virtual void after_forward(const Visit&, StepContext&) {}
  // Once per backward visit of a unit, not for the weights' half. From here to values_done the values of the unit's
  // parameters are complete.
  virtual void before_backward(const Visit&, StepContext&) {}
  // Once per backward visit, before gradients are written. From here to after_backward the slots (Param::grad) are
  // valid. A strategy waits here for a reduction that still reads the slots.
  virtual void before_grads(const Visit&, StepContext&) {}
  // Once per backward visit, not for the inputs' half. The gradients of the visit's micro-batch are in the slots, added
  // to earlier ones since Param::restart_grad. A trainable parameter without a gradient has a slot of zeros.
  virtual void after_backward(const Visit&, StepContext&) {}
  // Once per backward visit, not for the weights' half. The visit does not read the values of the unit's parameters any
  // more.
  virtual void values_done(const Visit&, StepContext&) {}
  // Once per training step, after the last visit. On return, this strategy's part of every gradient is final.
  virtual void flush_grads(StepContext&) {}
  // After every Optimizer::update with its list, and before the first step for each list of trainables() and frozen():
  // these trainables have new values. The strategy distributes them. Do not call visit() or batch() here.
  virtual void after_update(Trainables& chunk, StepContext&) {}
  // Once per training step, also if the update was skipped.
  virtual void step_end(StepContext&) {}
  // For strategies whose layers have parameters of their own, which the model did not ask for and Model::weight_rules
  // does not name. The next three are called once the model is built: when a run is planned, when values are filled and
  // when weights are written, also where nothing is attached (a checkpoint that is converted).
  // The folders that hold these parameters. Without one they start by Param::init, and exports leave them out. The same
  // on every rank.
  virtual std::vector<WeightFolder> weight_folders() const { return {}; }
  // Whether a run writes the model's own weights at its end, beside weight_folders(). One strategy that returns false
  // keeps them out: its folders say all, since the weights of the model are those that it was read from. A checkpoint
  // that is converted into a model's folder is written whole, whatever this says.
  virtual bool exports_model() const { return true; }
  // A parameter of the model as it is exported, with what this strategy's layers add to it (W + s B A), in a new
  // tensor. `value`: float32, whole, with what strategies inside have added. `whole`: returns any parameter by name in
  // the same form, without what anybody adds; collective, so that every rank makes the same calls. The default returns
  // `value`.
  using WholeParam = std::function<at::Tensor(const std::string& name)>;
  virtual at::Tensor merge(const Param& param, const at::Tensor& value, const WholeParam& whole) const { return value; }
  // Visits what this strategy keeps from step to step (state.h). The runtime visits the values of trainables() itself.
  virtual void state(StateVisitor&) {}
  // What the layers of this strategy add to the model, or take from it: `parameters`, `parameters_active`, operations
  // per token. Called once, before the first `plan`, innermost strategy first; all plugins see the changed facts.
  virtual void change_facts(ModelFacts&) const {}
};

}  // namespace drivetrain
