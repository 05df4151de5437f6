// What planning makes: the plan, and the objects that were asked for it. Nothing big is allocated: parameters are on
// the meta device. Main thread of a rank.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include <drivetrain/attention.h>
#include <drivetrain/communicator.h>
#include <drivetrain/data_parallel.h>
#include <drivetrain/lr_schedule.h>
#include <drivetrain/model.h>
#include <drivetrain/optimizer.h>
#include <drivetrain/precision.h>
#include <drivetrain/recompute.h>
#include <drivetrain/schedule.h>

#include "contract/device_runtime.h"
#include "flight/record.h"
#include "formats/open_folder.h"
#include "internal.h"
#include "observe/bus.h"
#include "plan/choose_plugins.h"
#include "plan/named_policy.h"
#include "plan/run_plan.h"
#include "rendezvous/rendezvous.h"
#include "step/hooks.h"
#include "step/named_evaluation.h"
#include "step/param_groups.h"
#include "step/program.h"

namespace drivetrain {

// What a rank starts from.
struct RankSetup {
  RankEnvironment environment;
  std::shared_ptr<Store> store;
  std::shared_ptr<Log> log;
  std::shared_ptr<FlightRecord> flight = {};  // null: none is kept
};

// The chosen plugins. Null where a kind has none.
struct RunPlugins {
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
  std::shared_ptr<CheckpointStore> checkpoint_store;  // null: nothing is saved
  std::vector<NamedPolicy> checkpoint_policies;
  std::vector<NamedEvaluation> evaluations;  // in the order of the configuration
  Strategies strategies;                     // outermost first
};

struct DRIVETRAIN_INTERNAL PreparedRun {
  PreparedRun() = default;
  PreparedRun(PreparedRun&&) = default;
  ~PreparedRun();  // units first, so that a crash in one names the model

  RunPlan plan;
  std::vector<ChosenPlugin> chosen;  // as RunPlan::plugins, with their options
  std::shared_ptr<Log> log;
  std::shared_ptr<Store> store;
  std::shared_ptr<FlightRecord> flight;      // null: none is kept
  std::unique_ptr<const PluginMaker> maker;  // for options that name plugins; uses the registry of the plan
  std::unique_ptr<Services> services;
  std::unique_ptr<Mesh> mesh;
  RunPlugins plugins;
  std::unique_ptr<const FolderReaders> folders;  // for weights and checkpoints; uses the registry of the plan
  // Of the whole model in chain order; those of other stages stay on the meta device.
  std::vector<ParamPtr> model_params;
  std::set<std::string> added_params;   // those of model_params that strategies' layers have beyond the model's
  ParamGroups param_groups;             // those of the config that train
  UnitList units;                       // of this rank's stage, chunk after chunk
  std::vector<ChunkUnits> chunk_units;  // of each of its chunks
  std::vector<Builder::SequenceCut> batch_cuts, activation_cuts;

  // This rank's place in the pipeline.
  int64_t stage() const { return mesh->index(Schedule::kAxis); }
  // This rank's index among those that read different rows.
  int64_t batch_rank() const;
  // Those that are trained and whose weight decay the config leaves to the optimizer.
  std::vector<ParamPtr> params_of_optimizer() const;
  // Null on the CPU. Error(internal) if the run is on a device that nobody opened.
  DeviceRuntime* device_runtime() const;
};

}  // namespace drivetrain
