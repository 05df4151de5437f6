#include "report/memory_plan.h"

#include <c10/core/ScalarType.h>

#include <drivetrain/checkpoint_policy.h>
#include <drivetrain/error.h>
#include <drivetrain/optimizer.h>
#include <drivetrain/schedule.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain {

const char* memory_class_name(MemoryClass memory_class) {
  switch (memory_class) {
    case MemoryClass::parameters:
      return "parameters";
    case MemoryClass::gradients:
      return "gradients";
    case MemoryClass::optimizer:
      return "optimizer";
    case MemoryClass::activations:
      return "activations";
    case MemoryClass::buffers:
      break;
  }
  return "buffers";
}

double MemoryTable::states() const {
  double sum = 0;
  for (const MemoryClass c : kStateClasses) sum += (*this)[c];
  return sum;
}

double MemoryTable::passing() const {
  return (*this)[MemoryClass::buffers] + (*this)[MemoryClass::activations] + working + slack;
}

double MemoryTable::together() const { return states() + passing() + context + communicator; }

double PlannedMemory::on_device(MemoryClass c) const {
  return (*this)[c] - (is_state(c) ? host_bytes[static_cast<size_t>(c)] : 0);
}

double PlannedMemory::states_on_host() const {
  double sum = 0;
  for (const MemoryClass c : kStateClasses) sum += host_bytes[static_cast<size_t>(c)];
  return sum;
}

double PlannedMemory::on_host() const {
  double sum = host_working;
  for (const double bytes : host_bytes) sum += bytes;
  return sum;
}

std::vector<MemoryRow> PlannedMemory::passing_rows() const {
  std::vector<MemoryRow> rows;
  const auto add = [&](const char* name, double bytes, const std::string& source) {
    if (bytes > 0) rows.push_back({name, bytes, source});
  };
  for (const MemoryClass c : {MemoryClass::buffers, MemoryClass::activations})
    add(memory_class_name(c), (*this)[c], sources[static_cast<size_t>(c)]);
  add("working", working, working_source);
  add("slack", slack, "the allocator's rounding");
  add("context", context, "the device and its libraries");
  add("communicator", communicator, "groups of ranks");
  return rows;
}

// Values are saved as the optimizer updates them; ranks' shares are about equal.
CheckpointBytes checkpoint_bytes(const RunPlan& plan) {
  if (plan.id_of(CheckpointStore::kKind).empty() || plan.id_of(CheckpointPolicy::kKind).empty()) return {};
  const auto element = static_cast<double>(c10::elementSize(plan.dtypes.types.master));
  const double bytes = static_cast<double>(plan.model.parameters) * element + plan.optimizer_state_bytes;
  return {bytes, bytes / static_cast<double>(plan.run.world_size)};
}

namespace {

PlannedMemory memory_of(const RunPlan& plan, const StageMemory& stage) {
  PlannedMemory planned;
  const auto add = [&](MemoryClass c, double bytes, const std::string& source) {
    planned[c] += bytes;
    std::string& sources = planned.sources[static_cast<size_t>(c)];
    sources += (sources.empty() ? "" : "; ") + source;
  };
  const auto on_host = [&](double& sum, double bytes, const std::string& source) {
    if (bytes <= 0) return;
    sum += bytes;
    planned.host_source += (planned.host_source.empty() ? "" : "; ") + source;
  };
  const std::string optimizer = plan.id_of(Optimizer::kKind);
  double updating = 0;  // buffers of the optimizer, which live while no activations do
  std::string updating_source;
  for (const PlanRecord::Memory& m : stage.parts) {
    const std::string source = m.by + ": " + m.what;
    if (m.by == optimizer && m.memory_class == MemoryClass::buffers && !m.on_host) {
      updating += m.bytes, updating_source += (updating_source.empty() ? "" : "; ") + source;
      continue;
    }
    if (!m.on_host || is_state(m.memory_class)) add(m.memory_class, m.bytes, source);
    if (m.on_host) on_host(planned.host_bytes[static_cast<size_t>(m.memory_class)], m.bytes, source);
  }
  if (!optimizer.empty()) {
    const double state = stage.state_bytes_per_element * stage.updated_elements;
    add(MemoryClass::optimizer, state, optimizer + ": state");
    if (plan.update.on_host)
      on_host(planned.host_bytes[static_cast<size_t>(MemoryClass::optimizer)], state, optimizer + ": state");
    on_host(planned.host_working, stage.host_bytes_per_update * stage.updated_elements, optimizer + ": what it sends");
  }
  const ActivationPlan& a = stage.activations;
  if (a.kept > 0) add(MemoryClass::activations, a.kept, a.source);
  if (a.messages > 0) add(MemoryClass::buffers, a.messages, "messages between stages");
  planned.working = a.working, planned.slack = a.slack, planned.working_source = a.working_source;
  if (updating > a.kept + a.messages + a.working)
    planned.working = updating - a.kept - a.messages, planned.working_source = updating_source;
  return planned;
}

// Groups along an axis of several ranks, and that of all ranks.
double groups_of_ranks(const RunPlan& plan) {
  double groups = plan.run.world_size > 1 ? 1 : 0;
  for (const Axis& axis : plan.mesh.axes) groups += axis.size > 1 && axis.size < plan.run.world_size ? 1 : 0;
  return groups;
}

// Ranks with the same index of stage stand `stride` apart, in runs of `stride`.
struct StageAxis {
  int64_t stride = 1, size = 1;
};

StageAxis stage_axis(const RunPlan& plan) {
  int64_t stride = 1;
  for (const Axis& axis : plan.mesh.axes) {
    if (axis.name == Schedule::kAxis) return {stride, axis.size};
    stride *= axis.size;
  }
  return {};
}

}  // namespace

std::vector<PlannedMemory> memory_by_stage(const RunPlan& plan, const DeviceCapacity& device) {
  std::vector<PlannedMemory> stages;
  for (const StageMemory& stage : plan.stage_memories) {
    PlannedMemory& planned = stages.emplace_back(memory_of(plan, stage));
    planned.context = device.context;
    planned.communicator = device.communicator * groups_of_ranks(plan);
    planned.slack += device.fragmentation * planned.passing();
  }
  return stages;
}

PlannedMemory planned_memory(const RunPlan& plan) {
  PlannedMemory fullest;
  for (PlannedMemory& stage : memory_by_stage(plan))
    if (stage.on_device() > fullest.on_device()) fullest = std::move(stage);
  return fullest;
}

int64_t stage_of_rank(const RunPlan& plan, int64_t rank) {
  const StageAxis axis = stage_axis(plan);
  return rank / axis.stride % axis.size;
}

std::vector<int64_t> ranks_of_stage(const RunPlan& plan, int64_t stage) {
  std::vector<int64_t> ranks;
  for (int64_t rank = 0; rank < plan.run.world_size; ++rank)
    if (stage_of_rank(plan, rank) == stage) ranks.push_back(rank);
  return ranks;
}

std::vector<MemoryVerdict> memory_verdicts(const RunPlan& plan, const DeviceCapacity& device) {
  std::vector<MemoryVerdict> verdicts;
  for (const PlannedMemory& memory : memory_by_stage(plan, device)) {
    const auto stage = static_cast<int64_t>(verdicts.size());
    const std::vector<int64_t> ranks = ranks_of_stage(plan, stage);
    verdicts.push_back(
        {stage, ranks.front(), ranks.back(), static_cast<int64_t>(ranks.size()), memory.on_device(), device.bytes});
  }
  return verdicts;
}

std::string verdict_text(const MemoryVerdict& v) {
  constexpr double kGiB = 1 << 30;
  const double left = (v.available - v.needed) / kGiB;
  return concat(
      v.ranks == 1 ? concat("rank ", v.first_rank)
                   : concat("stage ", v.stage, ", ", v.ranks, " ranks from ", v.first_rank, " to ", v.last_rank),
      formatted(": %.2f of %.2f GiB, ", v.needed / kGiB, v.available / kGiB),
      v.fits() ? formatted("fits with %.2f GiB left", left) : formatted("does not fit: %.2f GiB too much", -left));
}

}  // namespace drivetrain
