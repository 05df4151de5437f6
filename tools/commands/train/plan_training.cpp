#include "train/plan_training.h"

#include <algorithm>
#include <string_view>

#include <drivetrain/toolkit/text.h>

#include "findings/limits.h"
#include "plugin_calls/plugin_call.h"
#include "report/memory_plan.h"
#include "train/exported_weights.h"

namespace drivetrain {
namespace {

std::string gigabytes(double bytes) { return formatted(bytes < 1e14 ? "%.1f GB" : "%.3g GB", bytes / 1e9); }

// An unknown family is told now, not after training.
void check_final_form(const PreparedRun& run) {
  if (!run.plan.settings.save_final) return;
  const std::string model = run.plan.id_of(Model::kKind);
  try {
    plugin_call({.id = model, .hook = "weight_rules", .keeps_errors = true}, [&] { exported_weights(run, {}); });
  } catch (const Error& e) {
    throw fail(e.code(), e.what(),
               "\n   or set \"save_final\" to false: then it trains, and no such folder is written");
  }
}

void check_trained(const PreparedRun& run) {
  const auto is_trained = [](const ParamPtr& param) { return param->trainable; };
  if (std::any_of(run.model_params.begin(), run.model_params.end(), is_trained)) return;
  throw fail(ErrorCode::config, "nothing would be trained: all ", run.model_params.size(),
             " parameters of the model are frozen\n   leave some to the optimizer");
}

}  // namespace

std::unique_ptr<PreparedRun> plan_training(const RunSettings& settings, std::vector<ChosenPlugin> chosen,
                                           const Registry& registry, const RankSetup& setup) {
  std::unique_ptr<PreparedRun> run;
  try {
    run = prepare_run(settings, std::move(chosen), registry, setup, Purpose::train);
  } catch (const Error& e) {
    // A mesh or a batch that does not fit the ranks: their number may be a mistake of who said it.
    const bool of_ranks =
        e.code() == ErrorCode::config && std::string_view(e.what()).find(" rank") != std::string::npos;
    if (!of_ranks || setup.environment.said_by.empty()) throw;
    throw fail(e.code(), e.what(), who_said(setup.environment));
  }
  check_trained(*run);
  check_final_form(*run);
  return run;
}

void check_host_memory(const RunPlan& plan, Log& log) {
  const MemoryLimits limits = memory_limits();
  if (plan.run.device != "cpu" || limits.total == 0) return;
  const double has = limits.most();
  const PlannedMemory planned = planned_memory(plan);
  const double needs = planned.states(), all = needs + planned.passing();
  const std::string there =
      concat(has < limits.total ? "; its control group or ulimit -v leaves it " : "; this host has ", gigabytes(has),
             " in all");
  const std::string remedy = "; `train --plan` shows what needs how much";
  if (needs > has)
    throw fail(ErrorCode::out_of_memory,
               "out of memory before the run began: parameters, gradients and the optimizer's state of this rank need ",
               gigabytes(needs), there, "\n   use a smaller model, or share it out over more hosts", remedy);
  // An estimate: the run may fit. Without memory the kernel ends a process, which can say nothing then.
  if (all > has)
    log.warning(concat("a step of this rank may need ", gigabytes(all), there,
                       ": the kernel ends a process that takes more; use a smaller micro-batch or sequence length, ",
                       "or recompute activations", remedy));
}

}  // namespace drivetrain
