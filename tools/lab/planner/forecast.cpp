#include "planner/forecast.h"

#include <algorithm>
#include <cmath>

#include <drivetrain/toolkit/text.h>

#include "planner/run_work.h"

namespace drivetrain {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

// State as another system holds it, activations as planned here, and whole logits.
PlannedMemory profile_memory(const RunPlan& plan, size_t stage, const ProfileMemory& profile) {
  const StageMemory& own = plan.stage_memories[stage];
  const auto parameters = plan.by_stage(&PlacedPiece::parameters);
  PlannedMemory memory;
  const auto held = parameters.find(static_cast<int64_t>(stage));
  if (held != parameters.end())
    memory[MemoryClass::parameters] = profile.whole_bytes * static_cast<double>(held->second);
  memory[MemoryClass::optimizer] = profile.shared_bytes * own.updated_elements;
  memory[MemoryClass::activations] = own.activations.kept;
  memory.working = own.activations.working;
  if (stage + 1 == plan.stage_memories.size())
    memory.working = std::max(memory.working, profile.logit_bytes * static_cast<double>(plan.batch.micro_batch_size) *
                                                  static_cast<double>(plan.run.seq_length.value()) *
                                                  static_cast<double>(plan.model.vocab_size) /
                                                  static_cast<double>(plan.run.tensor_ranks.value_or(1)));
  memory.context = profile.overhead_gib * kGiB;
  return memory;
}

MemoryForecast memory_of(const RunPlan& plan, const Hardware& hardware, const Profile* profile) {
  const DeviceCapacity device = capacity_of(hardware);
  MemoryForecast memory;
  if (profile && profile->memory) {
    for (size_t stage = 0; stage < plan.stage_memories.size(); ++stage)
      if (PlannedMemory one = profile_memory(plan, stage, *profile->memory);
          one.on_device() > memory.planned.on_device())
        memory.planned = std::move(one);
    memory.gib = memory.planned.on_device() / kGiB, memory.has_gib = hardware.memory.gib;
    return memory;
  }
  for (PlannedMemory& stage : memory_by_stage(plan, device))
    if (stage.on_device() > memory.planned.on_device()) memory.planned = std::move(stage);
  memory.verdicts = memory_verdicts(plan, device);
  memory.gib = memory.planned.on_device() / kGiB;
  memory.has_gib = hardware.memory.gib;
  return memory;
}

void check_machine(const RunPlan& plan, const Hardware& hardware) {
  if (plan.run.device != hardware.device)
    throw fail(ErrorCode::config, hardware.path, " is a machine for device \"", hardware.device,
               "\", and the run is on \"", plan.run.device,
               "\"\n   take another --hardware, or --set device=", hardware.device);
  const int64_t most = hardware.hosts * hardware.ranks_per_host;
  if (plan.run.world_size > most)
    throw fail(ErrorCode::config, "the run has ", plan.run.world_size, " ranks, and ", hardware.path, " has ",
               hardware.hosts, hardware.hosts == 1 ? " host of " : " hosts of ", hardware.ranks_per_host,
               "\n   use fewer ranks (-n), or raise hosts or ranks_per_host in that file");
}

std::string bar(double share) {
  return std::string(static_cast<size_t>(std::lround(40 * std::clamp(share, 0.0, 1.0))), '#');
}

std::string memory_text(const MemoryForecast& m) {
  std::string text = "memory of the fullest rank, GiB:\n";
  const auto line = [&](const std::string& what, double gib) {
    if (gib > 0)
      text += formatted("  %-14s %9.3f  %s\n", what.c_str(), gib, bar(gib / std::max(m.gib, m.has_gib)).c_str());
  };
  for (const MemoryClass c : kStateClasses) line(memory_class_name(c), m.planned.on_device(c) / kGiB);
  for (const MemoryRow& row : m.planned.passing_rows()) line(row.name, row.bytes / kGiB);
  text += formatted("  %-14s %9.3f of %.3f: ", "together", m.gib, m.has_gib);
  text += m.fits() ? formatted("fits, %.3f left\n", m.has_gib - m.gib)
                   : formatted("DOES NOT FIT, %.3f too much\n", m.gib - m.has_gib);
  if (m.planned.on_host() > 0)
    text += formatted("  beside it on the host %.3f: ", m.planned.on_host() / kGiB) + m.planned.host_source + "\n";
  if (m.verdicts.size() > 1)
    for (const MemoryVerdict& verdict : m.verdicts) text += "  " + verdict_text(verdict) + "\n";
  return text;
}

std::string time_text(const StepTime& time, const Hardware& hardware) {
  std::string text = formatted(
      "a step on %s takes %.4g s: %.4g tokens per rank and second, %.4g samples per second, %.4g TFLOPS, MFU %.1f %%\n",
      hardware.name.c_str(), time.seconds, time.tgs, time.samples_per_s, time.tflops, 100 * time.mfu);
  size_t width = 0;
  for (const TimePart& part : time.parts) width = std::max(width, part.what.size());
  for (const TimePart& part : time.parts) {
    const double share = part.seconds / time.seconds;
    text += "  " + part.what + std::string(width - part.what.size(), ' ');
    text += formatted(" %10.4g s %5.1f %%  ", part.seconds, 100 * share) + bar(share);
    text +=
        part.hidden > 0 ? formatted("%s(%.4g s more beside computations)", share > 0.0125 ? " " : "", part.hidden) : "";
    text += "\n";
  }
  return text + formatted("  products at %.0f %% of the peak\n", 100 * time.products_share);
}

}  // namespace

DeviceCapacity capacity_of(const Hardware& hardware) {
  const Overheads& o = hardware.overheads;
  return {hardware.memory.gib * kGiB, o.context_gib * kGiB, o.communicator_gib * kGiB, o.allocator_share};
}

Forecast forecast(const PreparedRun& run, const Hardware& hardware, const Profile* profile) {
  check_machine(run.plan, hardware);
  const StepWork work = work_of_run(run);
  return {memory_of(run.plan, hardware, profile),
          step_time(profile && profile->time ? with_profile(work, *profile->time) : work, hardware,
                    model_flops_of(run.plan)),
          work};
}

std::string forecast_text(const RunPlan&, const Forecast& forecast, const Hardware& hardware) {
  return memory_text(forecast.memory) + time_text(forecast.time, hardware);
}

Value forecast_value(const Forecast& forecast, const Hardware& hardware) {
  const MemoryForecast& m = forecast.memory;
  Value memory = Value::object();
  for (const MemoryClass c : kStateClasses) memory.set(memory_class_name(c), m.planned.on_device(c) / kGiB);
  for (const MemoryRow& row : m.planned.passing_rows()) memory.set(row.name, row.bytes / kGiB);
  memory.set("together", m.gib), memory.set("device", m.has_gib), memory.set("on_host", m.planned.on_host() / kGiB);
  Value value = Value::object();
  value.set("hardware", hardware.name), value.set("fits", m.fits());
  value.set("memory_gib", std::move(memory)), value.set("time", forecast.time.to_value());
  return value;
}

}  // namespace drivetrain
