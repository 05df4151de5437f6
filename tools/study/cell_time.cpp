#include "study/cell_time.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include <drivetrain/error.h>

#include "config/printable.h"
#include "study/interrupts.h"
#include "study/process.h"

namespace drivetrain::study {
namespace {

void plan_time(CellPlan& plan, const std::string& program, const std::string& base, const std::string& hardware) {
  ProcessStart start;
  start.environment = plan.environment;
  start.command = {program, "plan", base, "-n", std::to_string(plan.world_size), "--hardware", hardware, "--json"};
  for (const std::string& set : plan.sets) start.command.insert(start.command.end(), {"--set", set});
  const ProcessEnd end = run_process(start);
  if (end.stopped) throw fail(ErrorCode::config, "stopped while it planned, before any run");
  if (end.code != 0) {
    plan.no_time = end.timed_out ? concat("`drivetrain plan` did not answer within ", start.timeout_s, " s")
                                 : without_prefix(end.err);
    if (plan.no_time.empty()) plan.no_time = concat("`drivetrain plan` ended with exit ", end.code);
    return;
  }
  const Value answer = parse_json(end.out, "the plan");
  const Value* at = &answer;
  for (const char* key : {"forecast", "time", "seconds"})
    if (at) at = at->find(key);
  if (!at || !at->is_number()) throw fail(ErrorCode::internal, "`drivetrain plan --json` has no forecast.time.seconds");
  plan.step_s = at->as_double();
}

}  // namespace

void plan_times(std::vector<CellPlan>& plans, const std::string& program, const std::string& base,
                const std::string& hardware) {
  std::vector<CellPlan*> asked;
  for (CellPlan& plan : plans)
    if (plan.refusal.empty()) asked.push_back(&plan);
  std::atomic<size_t> next = 0;
  std::vector<std::future<void>> workers;
  for (unsigned n = std::max(1u, std::thread::hardware_concurrency()); n > 0; --n)
    workers.push_back(std::async(std::launch::async, [&] {
      for (size_t i; (i = next.fetch_add(1)) < asked.size();) {
        if (Interrupts::count() > 0) throw fail(ErrorCode::config, "stopped while it planned, before any run");
        plan_time(*asked[i], program, base, hardware);
      }
    }));
  for (std::future<void>& worker : workers) worker.wait();
  for (std::future<void>& worker : workers) worker.get();
  const bool any = std::any_of(asked.begin(), asked.end(), [](const CellPlan* plan) { return plan->step_s > 0; });
  if (!any && !asked.empty())
    throw fail(ErrorCode::config, "study: no cell has a planned time: ", asked.front()->no_time);
}

}  // namespace drivetrain::study
