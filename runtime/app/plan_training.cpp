#include "app/plan_training.h"

#include <sys/sysinfo.h>

#include <drivetrain/toolkit/text.h>

#include "checks/plugin_call.h"
#include "plan/memory_plan.h"

namespace drivetrain {
namespace {

std::string gigabytes(double bytes) { return formatted(bytes < 1e14 ? "%.1f GB" : "%.3g GB", bytes / 1e9); }

// An unknown family is told now, not after training.
void check_final_form(const PlannedRun& run) {
  if (!run.plan.settings.save_final) return;
  const std::string model = run.plan.id_of(Model::kKind);
  try {
    plugin_call({.id = model, .hook = "weight_rules", .keeps_errors = true},
                [&] { run.plugins.model->weight_rules("hf"); });
  } catch (const Error& e) {
    throw fail(e.code(), e.what(),
               "\n   or set \"save_final\" to false: then it trains, and no such folder is written");
  }
}

}  // namespace

std::unique_ptr<PlannedRun> plan_training(const RunSettings& settings, std::vector<ChosenPlugin> chosen,
                                          const Registry& registry, const RankSetup& setup) {
  auto run = plan_run(settings, std::move(chosen), registry, setup, Purpose::train);
  check_final_form(*run);
  return run;
}

void check_host_memory(const RunPlan& plan) {
  struct sysinfo host = {};
  if (plan.run.device != "cpu" || sysinfo(&host) != 0) return;
  const double has = (static_cast<double>(host.totalram) + static_cast<double>(host.totalswap)) * host.mem_unit;
  const double needs = planned_memory(plan).states();
  if (needs <= has) return;
  throw fail(
      ErrorCode::out_of_memory, "parameters, gradients and the optimizer's state of this rank need ", gigabytes(needs),
      "; this host has ", gigabytes(has),
      " in all\n   use a smaller model, or share it out over more hosts; `train --plan` shows what needs how much");
}

}  // namespace drivetrain
