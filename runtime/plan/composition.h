// Everything one rank of a run is made of, from the config to filled parameters.
// Built in the order of its functions; each one gathers all the problems it finds before it throws. Main thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/data_parallel.h>
#include <drivetrain/dataset.h>
#include <drivetrain/lr_schedule.h>
#include <drivetrain/model.h>
#include <drivetrain/monitor.h>
#include <drivetrain/precision.h>
#include <drivetrain/recompute.h>
#include <drivetrain/schedule.h>

#include "config/run_settings.h"
#include "config/sections.h"
#include "internal.h"
#include "observe/bus.h"
#include "plan/mesh_plan.h"
#include "plugin/registry.h"
#include "rendezvous/rendezvous.h"
#include "step/capture.h"
#include "step/hooks.h"
#include "step/program.h"

namespace drivetrain {

// What a rank starts from.
struct RankSetup {
  RankEnvironment environment;
  std::shared_ptr<Store> store;
  std::shared_ptr<Log> log;
};

// A selection with its parsed options.
struct ChosenPlugin {
  Selection selection;
  std::shared_ptr<void> options;
  std::vector<ChosenPlugin> fallbacks;  // tried in order if this one refuses the run
  const std::string& kind() const { return selection.kind; }
  const std::string& name() const { return selection.name; }
  std::string id() const { return kind() + "/" + name(); }
};

// A piece of the model's chain and where it is computed.
struct PlacedPiece {
  int64_t stage = 0, chunk = 0;
  int64_t first = 0, last = 0;  // units [first, last) of the whole chain
  std::string first_unit, last_unit;
  double cost = 0;         // as Model::cost has it
  int64_t parameters = 0;  // that a rank of the stage computes with, those of another piece of the stage left out
};

struct DRIVETRAIN_INTERNAL Composition {
  Composition() = default;
  ~Composition();  // units first, so that whose they are is known

  RunSettings settings;
  BatchSizes batch;
  RunFacts run;
  ModelFacts facts;
  MeshPlan mesh_plan;
  std::vector<ChosenPlugin> chosen;
  std::vector<std::string> notes;  // lines shown once at the start: what is expensive, what has no effect

  std::shared_ptr<Log> log;
  std::shared_ptr<Store> store;
  std::unique_ptr<Services> services;
  std::unique_ptr<Mesh> mesh;

  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<Model> model;
  std::shared_ptr<Schedule> schedule;
  std::shared_ptr<Attention> attention;
  std::shared_ptr<Optimizer> optimizer;
  std::shared_ptr<LrSchedule> lr_schedule;
  std::shared_ptr<Dataset> dataset;
  std::shared_ptr<DataParallel> data_parallel;  // these three also in strategies
  std::shared_ptr<Recompute> recompute;         // null: everything is kept
  std::shared_ptr<Precision> precision;         // null: float32 throughout
  std::vector<NamedMonitor> monitors;
  Strategies strategies;  // outermost first

  DatasetFacts data;
  std::vector<PlacedPiece> placement;  // in chain order
  // of the whole model in chain order; those of other stages stay on the meta device
  std::vector<ParamPtr> model_params;
  // of parameters that several stages compute with: which, ascending
  std::map<std::string, std::vector<int64_t>> tied_stages;
  UnitList units;                       // of this rank's stage, chunk after chunk
  std::vector<ChunkUnits> chunk_units;  // of each of its chunks
  std::vector<Builder::SequenceCut> batch_cuts, activation_cuts;
  std::vector<Trainables> chunks;
  std::vector<PlanContext::Memory> memories;
  std::vector<PlanContext::Traffic> traffics;
  double updated_elements = 0;  // by a rank's optimizer, as planned
  CaptureChoice capture;

  // The chosen plugin of a kind, "optimizer/adamw"; "" if there is none.
  std::string id_of(const std::string& kind) const;
  // This rank's place in the pipeline, and the number of stages.
  int64_t stage() const { return mesh->index(Schedule::kAxis); }
  int64_t stages() const { return schedule->stages(); }
  std::vector<std::string> gradient_axes() const;  // that join the gradient reduction
  // This rank's index among those that read different rows.
  int64_t batch_rank() const;
  // Null on the CPU. Error(internal) if the run is on a device that nobody opened.
  DeviceRuntime* device_runtime() const;
};

enum class Purpose { train, generate };  // generate: no dataset, optimizer, lr_schedule, monitors

// Which plugins: selection and options of every section, switched-off ones included. All problems of the file at once.
DRIVETRAIN_INTERNAL std::vector<ChosenPlugin> choose_plugins(const Value& config, const Registry& registry,
                                                             const std::string& device, Problems& problems,
                                                             Purpose purpose = Purpose::train);

// Creates the plugins, negotiates, solves mesh and batch sizes, and builds the model on the meta device. A plugin that
// refuses the run is replaced by the next of its order of preference, with a warning; where there is none, Error with
// all problems. No rank waits for another in here.
DRIVETRAIN_INTERNAL std::unique_ptr<Composition> plan_run(const RunSettings& settings, std::vector<ChosenPlugin> chosen,
                                                          const Registry& registry, const RankSetup& setup,
                                                          Purpose purpose);

// What this rank holds of the model's values once it is built: what it updates, and its parts of what nobody updates.
std::vector<Trainables> held_values(const Composition& run);
// Parameters that the storage owner named in neither, whole.
Trainables unnamed_values(const Composition& run);

// The whole model on the meta device, decorated by the strategies. Needs the mesh; no rank waits for another.
std::vector<UnitPtr> build_chain(Composition& run);
// Cuts it into the schedule's pieces and keeps those of this rank's stage.
// Error(config) where it has fewer units than pieces.
void place_chain(Composition& run, const std::vector<UnitPtr>& chain);
// The units of each stage between the chain's first and last.
std::map<int64_t, int64_t> blocks_by_stage(const Composition& run);

// Gives the model storage and fills it. Collective from here on.
DRIVETRAIN_INTERNAL void build_run(Composition& run);

}  // namespace drivetrain
