#include "report/plan_text.h"

#include <algorithm>
#include <map>

#include <drivetrain/recompute.h>
#include <drivetrain/toolkit/text.h>

#include "report/memory_report.h"
#include "report/schedule_picture.h"

namespace drivetrain {
namespace {

std::string short_count(double n) {
  if (n >= 1e9) return formatted("%.2fB", n / 1e9);
  if (n >= 1e6) return formatted("%.1fM", n / 1e6);
  return n >= 1e4 ? formatted("%.1fk", n / 1e3) : formatted("%.0f", n);
}

std::string plugins_text(const RunPlan& plan) {
  std::string text;
  for (const PlannedPlugin& plugin : plan.plugins)
    if (plugin.enabled) text += (text.empty() ? "" : ", ") + plugin.id();
  return text;
}

// "mesh, fastest axis first: tp 2 x dp 4", then who asked for each axis.
std::string mesh_lines(const RunPlan& plan) {
  const MeshPlan& mesh = plan.mesh;
  std::string text = "mesh, fastest axis first: " + mesh.text() + "\n";
  int64_t stride = 1;
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    const Axis& axis = mesh.axes[i];
    text += formatted("  %-8s %5lld, ranks %lld apart, ", axis.name.c_str(), static_cast<long long>(axis.size),
                      static_cast<long long>(stride));
    text += mesh.owners[i] + (axis.joins_gradients ? "; gradients are summed over it\n" : "\n");
    stride *= axis.size;
  }
  return text;
}

// Which part of the chain each stage computes, in chain order.
std::string placement_lines(const RunPlan& plan) {
  if (plan.placement.size() < 2) return "units: every rank computes all of them\n";
  double cost = 0;
  for (const PlacedPiece& piece : plan.placement) cost += piece.cost;
  std::string text =
      concat("placement of ", plan.placement.back().last, " units, in their order, with their share of the work:\n");
  for (const PlacedPiece& piece : plan.placement) {
    const std::string where = plan.schedule.chunks > 1 ? concat("stage ", piece.stage, " chunk ", piece.chunk)
                                                       : concat("stage ", piece.stage);
    const std::string units =
        piece.first_unit == piece.last_unit ? piece.first_unit : piece.first_unit + " to " + piece.last_unit;
    text +=
        formatted("  %-18s %-28s %6.2f %%  %s parameters on each rank\n", where.c_str(), units.c_str(),
                  cost > 0 ? 100 * piece.cost / cost : 0.0, short_count(static_cast<double>(piece.parameters)).c_str());
  }
  return text;
}

std::string bytes_text(double bytes) {
  return bytes >= 1e9 ? formatted("%10.2f GB", bytes / 1e9) : formatted("%10.2f MB", bytes / 1e6);
}

std::string short_bytes(double bytes) {
  std::string text = bytes_text(bytes);
  return text.erase(0, text.find_first_not_of(' '));
}

}  // namespace

// Axes in the mesh's order; several sorts of messages along one stand below its sum.
std::string traffic_text(const RunPlan& plan) {
  std::map<std::string, double> sums;
  for (const auto& t : plan.traffics) sums[t.axis] += t.bytes;
  std::string text;
  for (const Axis& axis : plan.mesh.axes) {
    if (sums[axis.name] <= 0) continue;
    text += formatted("  %-8s", axis.name.c_str()) + bytes_text(sums[axis.name]) + "\n";
    for (const auto& t : plan.traffics)
      if (t.axis == axis.name && t.bytes > 0) text += "    " + bytes_text(t.bytes) + "  " + t.by + ": " + t.what + "\n";
  }
  if (text.empty()) return "";
  return concat("traffic, sent by a rank in a step",
                !plan.id_of(Recompute::kKind).empty() ? "; what recompute sends again is not counted" : "", ":\n",
                text);
}

// Where device and host have one memory there are none.
std::string host_traffic_text(const RunPlan& plan) {
  std::string text;
  for (const PlanRecord::Copies& c : plan.copies)
    if (c.traffic.bytes > 0) text += "    " + bytes_text(c.traffic.bytes) + "  " + c.by + ": " + c.traffic.what + "\n";
  return text.empty() ? "" : "copies between a rank's device and its host in a step:\n" + text;
}

std::string plan_headline(const RunPlan& plan) {
  const ModelFacts& model = plan.model;
  const std::string active =
      model.parameters_active > 0 && model.parameters_active < model.parameters
          ? concat(" (", short_count(static_cast<double>(model.parameters_active)), " active in a token)")
          : "";
  return concat(short_count(static_cast<double>(model.parameters)), " parameters", active, ", ", plan.run.world_size,
                plan.run.world_size == 1 ? " rank (" : " ranks (", plan.mesh.text(), "), batch ",
                plan.batch.train_batch_size, " = ", plan.batch.micro_batch_size, " x ", plan.batch.accumulation,
                " accumulated x ", plan.mesh.batch_ranks(), " ranks, sequences of ", plan.run.seq_length.value(), ", ",
                plan.settings.train_steps, " steps\nplugins: ", plugins_text(plan));
}

std::string param_groups_text(const RunPlan& plan) {
  std::string text = plan.param_groups.empty() ? "" : "parameter groups:";
  for (const PlannedParamGroup& group : plan.param_groups) {
    std::string sets;
    if (group.lr) sets += concat("lr ", *group.lr);
    if (group.weight_decay) sets += concat(sets.empty() ? "" : ", ", "weight_decay ", *group.weight_decay);
    if (sets.empty()) sets = group.frozen ? "frozen" : "the optimizer's";
    text += formatted("\n  %-16s %-32s %4lld tensors, %7s parameters  %s", group.name.c_str(), sets.c_str(),
                      static_cast<long long>(group.tensors), short_count(static_cast<double>(group.elements)).c_str(),
                      group.what.c_str());
    text.erase(text.find_last_not_of(' ') + 1);
  }
  return text;
}

std::string capture_text(const RunPlan& plan) {
  if (plan.capture.on) return "capture: steps are recorded after the first few and replayed";
  return plan.capture.why_not.empty() ? "" : "capture is off: " + plan.capture.why_not;
}

std::string checkpoint_text(const RunPlan& plan) {
  const CheckpointBytes bytes = checkpoint_bytes(plan);
  if (bytes.whole == 0) return "";
  return concat("a checkpoint has ", short_bytes(bytes.whole), ", of which a rank copies and writes ",
                short_bytes(bytes.of_rank), "; the copy stays in host memory");
}

std::string plan_text(const RunPlan& plan) {
  std::string text = plan_headline(plan) + "\n" + mesh_lines(plan);
  text += "hooks nest, outermost first:";
  for (const std::string& id : plan.nesting) text += " " + id;
  text += "\n" + placement_lines(plan);
  for (const std::string& line : planned_lines(planned_memory(plan), plan.model.parameters, true)) text += line + "\n";
  for (const std::string& line : stage_lines(plan)) text += line + "\n";
  text += traffic_text(plan) + host_traffic_text(plan);
  for (const std::string& note : plan.notes) text += note + "\n";
  if (const std::string groups = param_groups_text(plan); !groups.empty()) text += groups + "\n";
  if (const std::string capture = capture_text(plan); !capture.empty()) text += capture + "\n";
  if (const std::string checkpoint = checkpoint_text(plan); !checkpoint.empty()) text += checkpoint + "\n";
  return text + schedule_text(plan);
}

}  // namespace drivetrain
