#include <drivetrain/toolkit/text.h>

#include "contract/device_runtime.h"
#include "doctor/checks.h"
#include "report/memory_plan.h"
#include "report/plan_text.h"

namespace drivetrain {
namespace {

constexpr double kProcess = 1e9;  // LibTorch and the program, per rank

std::string share_text(const PlannedMemory& planned) {
  std::string text;
  for (const MemoryClass c : {MemoryClass::parameters, MemoryClass::gradients, MemoryClass::optimizer,
                              MemoryClass::buffers, MemoryClass::activations})
    if (const double bytes = planned.on_device(c); bytes > 0)
      text += concat(text.empty() ? "" : ", ", memory_class_name(c), " ", bytes_text(bytes));
  return text;
}

constexpr const char* kLessMemory =
    "use a smaller model, micro-batch or sequence, share the state out (zero_optimization), or use more hosts";

// What each of this host's ranks takes of its memory. `surely`: of that, what it never takes less of.
struct HostShare {
  std::string name, text;
  double surely = 0, all = 0;  // bytes of a rank
  const char* remedy;
};

// All ranks of this host together; memory that ranks share is counted once per rank, so this is the most it can be.
void judge_host_memory(Findings& findings, const HostShare& share, int64_t ranks) {
  const MemoryLimits limits = memory_limits();
  const double all = static_cast<double>(ranks) * (share.all + kProcess);
  const std::string text = concat(ranks, ranks == 1 ? " rank" : " ranks of this host", " with ", share.text,
                                  " each, and 1 GB per process: ", bytes_text(all), "; free are ",
                                  bytes_text(limits.free()), " of ", bytes_text(limits.most()));
  if (static_cast<double>(ranks) * share.surely > limits.most())
    findings.problem(share.name, text, share.remedy);
  else if (all > limits.free())
    findings.warning(share.name, text, concat("end other programs; if it is not enough then, ", share.remedy));
  else
    findings.ok(share.name, text);
}

void look_at_host_memory(Findings& findings, const PlannedMemory& planned, int64_t ranks) {
  judge_host_memory(
      findings, {"memory", share_text(planned), planned.states(), planned.states() + planned.passing(), kLessMemory},
      ranks);
}

void look_at_device_memory(Findings& findings, const PlannedMemory& planned, int64_t ranks) {
  const double of_rank = planned.on_device();
  const std::string text = concat(ranks, " GPUs with ", bytes_text(of_rank), " each (", share_text(planned), ")");
  const DeviceRuntime* const devices = device_runtime();
  if (!devices)
    return findings.problem("GPUs", text + "; this machine has none that can be used",
                            "run it where there are, or use \"device\": \"cpu\"");
  if (devices->count() < ranks)
    return findings.problem("GPUs", concat(text, "; this machine has ", devices->count()),
                            concat("start ", devices->count(), " ranks per host, or use more hosts"));
  for (int64_t i = 0; i < ranks; ++i)
    if (const DeviceFacts facts = devices->facts(i); of_rank > static_cast<double>(facts.memory_bytes))
      return findings.problem(
          "GPUs", concat(text, "; GPU ", i, " has ", bytes_text(static_cast<double>(facts.memory_bytes))), kLessMemory);
  findings.ok("GPUs", text);
}

// What ranks with GPUs keep in this host's memory.
void look_at_offloaded(Findings& findings, const PlannedMemory& planned, int64_t ranks) {
  judge_host_memory(
      findings,
      {"host memory", concat(bytes_text(planned.on_host()), " (", planned.host_source, ")"), planned.on_host(),
       planned.on_host(), "offload less, share the state out over more ranks or hosts, or use a smaller model"},
      ranks);
}

void look_at_disk_need(Findings& findings, const RunPlan& plan) {
  const double checkpoint = checkpoint_bytes(plan).whole;
  const double weights = plan.settings.save_final ? 4.0 * static_cast<double>(plan.model.parameters) : 0;
  const DiskPlace place = disk_place(plan.settings.output_dir);
  const std::string text = concat(
      checkpoint > 0 ? bytes_text(checkpoint) + " for each checkpoint that is kept" : "no checkpoints",
      weights > 0 ? ", " + bytes_text(weights) + " for the final weights" : "", "; free are ", bytes_text(place.free));
  // One is written while the one before is still there.
  if (2 * checkpoint + weights > place.free)
    return findings.problem("disk", text, "free some, choose another output_dir, or save less (checkpoint_policy)");
  findings.ok("disk", text);
}

}  // namespace

void look_at_needs(Findings& findings, const PreparedRun& run) {
  findings.begin("config");
  const RunPlan& plan = run.plan;
  findings.ok("plan", plan_headline(plan));
  std::string plugins;
  for (const PlannedPlugin& plugin : plan.plugins)
    if (plugin.enabled) plugins += concat(plugins.empty() ? "" : ", ", plugin.id());
  findings.ok("plugins", plugins);
  const PlannedMemory planned = planned_memory(plan);
  if (plan.run.device == "cpu")
    look_at_host_memory(findings, planned, plan.run.world_size);
  else
    look_at_device_memory(findings, planned, plan.run.world_size);
  if (planned.on_host() > 0) look_at_offloaded(findings, planned, plan.run.world_size);
  look_at_disk_need(findings, plan);
}

}  // namespace drivetrain
