// A run as it is planned: a value without plugin objects and tensors, which can be copied, kept and written as JSON.
// Reports, checks and predictions read it and nothing else. prepare_run makes it.
//
// It is the plan of one rank: mesh, placement and schedule are the same on all ranks; where figures differ between
// ranks they are those of the fullest rank, as far as this rank knows it.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/dataset.h>
#include <drivetrain/plan_record.h>
#include <drivetrain/planned_update.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/pipeline/timeline.h>

#include "config/run_settings.h"
#include "internal.h"
#include "plan/mesh_plan.h"
#include "step/capture.h"

namespace drivetrain {

struct PlannedPlugin {
  std::string kind, name;
  bool enabled = true;  // false: the file switches it off
  std::string id() const { return kind + "/" + name; }
};

// A piece of the model's chain and where it is computed.
struct PlacedPiece {
  int64_t stage = 0, chunk = 0;
  int64_t first = 0, last = 0;  // units [first, last) of the whole chain
  std::string first_unit, last_unit;
  int64_t blocks = 0;      // of those units
  double cost = 0;         // as Model::cost has it
  int64_t parameters = 0;  // that a rank of the stage computes with, those of another piece of the stage left out
  int64_t trained = 0;     // those of them that are not frozen
};

struct SchedulePlan {
  int64_t stages = 1, chunks = 1;
  std::vector<int64_t> slots;  // by stage: activations, of a micro-batch in a chunk each, that are kept at most
  // Of a training step, the pieces weighed by their costs. Only after add_timeline, and where it is not too long.
  std::optional<Timeline> timeline;
};

struct DtypePlan {
  Dtypes types;
  // Of operands of blocks' products, what plugins offer behind "products", in any order: .TYPE[.of_blocks][.read_once]
  // [.weights_kept][.takes_operands]; .gives_operands: norms and activations are left to casts; .gelu_fusion: GELU to
  // products. No type: parameters'.
  std::string products;
  // What chose them: a plugin's id, a key of the configuration or "default".
  std::string precision = "default", gradient = "default", reduce = "default";
};

// What micro-batches take at the fullest moment of a stage's program. Zeros where the units do not say.
struct ActivationPlan {
  double kept = 0;                     // by forward passes for their backward
  double working = 0;                  // by the visit of that moment beside it
  double messages = 0;                 // between stages, received ahead or not known to have arrived
  double slack = 0;                    // by which the allocator rounds these up
  std::string source, working_source;  // "model/...: 3 in flight x 8 blocks x 2048 tokens", "block.7, backward"
};

// What a rank of one stage holds.
struct StageMemory {
  std::vector<PlanRecord::Memory> parts;  // as plugins said
  double updated_elements = 0;            // by its optimizer
  double state_bytes_per_element = 0;     // of the optimizer: the mean over the stage's trainable parameters
  UpdateWork update;                      // beside what the optimizer reads and writes
  double host_bytes_per_update = 0;       // that the optimizer takes of the host for each of them, beside its state
  ActivationPlan activations;
};

// What a group of the config's has of the whole model; the last one of a list stands for parameters in none.
struct PlannedParamGroup {
  std::string name, what;                  // "param_groups[0]"; "block.*.mlp.*, role bias"
  std::optional<double> lr, weight_decay;  // nothing: the optimizer's
  bool frozen = false;
  int64_t tensors = 0, elements = 0;
};

// Positions of a sequence that this rank has.
struct PositionPlan {
  std::vector<RowRange> batch;        // of tokens and labels
  std::vector<RowRange> activations;  // of what goes from layer to layer
};

struct DRIVETRAIN_INTERNAL RunPlan {
  RunSettings settings;  // that it stems from
  int64_t rank = 0;
  BatchSizes batch;
  RunFacts run;
  ModelFacts model;        // with what strategies change (Strategy::change_facts)
  ModelFacts model_alone;  // as the model says
  DatasetFacts data;
  MeshPlan mesh;
  std::vector<PlannedPlugin> plugins;  // in the order of the file's sections, switched-off ones included
  std::vector<std::string> nesting;    // the strategies' ids, outermost first
  DtypePlan dtypes;
  SchedulePlan schedule;
  std::vector<PlacedPiece> placement;  // in chain order
  // Of parameters that several stages compute with: which stages, ascending.
  std::map<std::string, std::vector<int64_t>> tied_stages;
  PositionPlan positions;
  std::vector<PlannedParamGroup> param_groups;  // none: the config has no groups
  std::vector<StageMemory> stage_memories;
  std::vector<PlanRecord::Traffic> traffics;
  std::vector<PlanRecord::Copies> copies;
  PlanRecord::Update update;               // as planned
  double updated_elements = 0;             // by a rank's optimizer: as planned; once the run is built, as it is
  double optimizer_bytes_per_element = 0;  // of its state: the mean over what it trains of this rank's stage
  double optimizer_state_bytes = 0;        // of the whole model's state, once
  CaptureChoice capture;
  std::vector<std::string> notes;  // lines shown once at the start: what is expensive, what has no effect

  // The plugin of a kind that is chosen and switched on, the first of several; null if there is none.
  const PlannedPlugin* plugin(const std::string& kind) const;
  // Its id, "optimizer/adamw"; "" if there is none.
  std::string id_of(const std::string& kind) const;
  // Of each stage the sum over its pieces: &PlacedPiece::blocks, parameters, trained.
  std::map<int64_t, int64_t> by_stage(int64_t PlacedPiece::*what) const;
  // Of all of the model's parameters.
  double share_of_model(int64_t elements) const {
    return static_cast<double>(elements) / static_cast<double>(std::max<int64_t>(model.parameters, 1));
  }
  // Everything above and what follows from it: sums, shares, bytes per parameter. Sizes in bytes, times in forwards of
  // an average piece.
  Value to_json() const;
};

constexpr int64_t kMostTimelineBoxes = 400'000;  // of schedules that are simulated

}  // namespace drivetrain
