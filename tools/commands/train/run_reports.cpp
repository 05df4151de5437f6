#include "train/run_reports.h"

#include "log/log_console.h"
#include "plugin_calls/plugin_call.h"
#include "report/dtype_text.h"
#include "report/facts.h"
#include "report/plan_text.h"
#include "train/run_folder.h"

namespace drivetrain {

void announce(const TrainRequest& request, const Run& run, const Value& facts, const PlannedMemory& memory) {
  Log& log = *run.log;
  log.info(plan_headline(run.plan));
  request.registry->log_notes(log);
  log.info(dtype_table(run.plan));
  for (const std::string& line : planned_lines(memory, run.plan.model.parameters, false)) log.info(line);
  for (const std::string& note : run.plan.notes) log.info(note);
  for (const std::string& line : {param_groups_text(run.plan), capture_text(run.plan), checkpoint_text(run.plan)})
    if (!line.empty()) log.info(line);
  const std::string optimizer = run.plan.id_of(Optimizer::kKind);
  const std::string difference = plugin_call({optimizer, "difference_note"}, [&] {
    return run.plugins.optimizer->difference_note(run.params_of_optimizer());
  });
  if (!difference.empty()) log.info(difference);
  if (const Value* before = request.config.find("_resolved"))
    for (const std::string& line : differing_facts(*before, facts))
      log.warning("not as in the run this config is from: " + line);
  log.info("run folder " + run.plan.settings.output_dir);
}

Value run_begin_data(const TrainRequest& request, const Run& run, int64_t first_step) {
  Value data = Value::object();
  data.set("first_step", first_step);
  data.set("output_dir", run.plan.settings.output_dir);
  data.set("train_steps", run.plan.settings.train_steps);
  data.set("steps_per_print", run.plan.settings.steps_per_print);
  data.set("terminal", request.terminal);
  data.set("parameters", run.plan.model.parameters);
  return data;
}

Value report_memory(const Run& run, const PlannedMemory& planned, const std::vector<MeasuredMemory>& ranks) {
  for (const std::string& line : measured_lines(planned, ranks, run.plan.model.parameters)) run.log->info(line);
  if (ranks.size() > 1)
    for (const std::string& line : rank_lines(ranks)) note_in_file(*run.log, line);
  Value memory = memory_value(run.plan, ranks);
  write_run_file(run.plan.settings.output_dir + "/memory.json", memory.to_json(2) + "\n");
  return memory;
}

void report_times(const Run& run, const std::vector<Value>& ranks) {
  if (ranks.empty()) return;
  Value times = Value::object(), list = Value::array();
  list.items().assign(ranks.begin(), ranks.end());
  times.set("ranks", std::move(list));
  write_run_file(run.plan.settings.output_dir + "/step_times.json", times.to_json(2) + "\n");
}

Value run_end_data(const TrainOutcome& outcome, Value memory) {
  Value end = Value::object();
  end.set("reason", outcome.stopped ? "stopped" : "done");
  end.set("memory", std::move(memory));
  return end;
}

}  // namespace drivetrain
