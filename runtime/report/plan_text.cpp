#include "report/plan_text.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "report/memory_report.h"
#include "report/schedule_picture.h"

namespace drivetrain {
namespace {

std::string short_count(double n) {
  char text[32];
  if (n >= 1e9)
    std::snprintf(text, sizeof text, "%.2fB", n / 1e9);
  else if (n >= 1e6)
    std::snprintf(text, sizeof text, "%.1fM", n / 1e6);
  else if (n >= 1e4)
    std::snprintf(text, sizeof text, "%.1fk", n / 1e3);
  else
    std::snprintf(text, sizeof text, "%.0f", n);
  return text;
}

std::string plugins_text(const Composition& run) {
  std::string text;
  for (const ChosenPlugin& plugin : run.chosen)
    if (plugin.selection.enabled) text += (text.empty() ? "" : ", ") + plugin.id();
  return text;
}

template <class... Args>
std::string formatted(const char* format, Args... args) {
  char text[256];
  std::snprintf(text, sizeof text, format, args...);
  return text;
}

// "mesh, fastest axis first: tp 2 x dp 4", then who asked for each axis.
std::string mesh_lines(const Composition& run) {
  const MeshPlan& plan = run.mesh_plan;
  std::string text = "mesh, fastest axis first: " + plan.text() + "\n";
  int64_t stride = 1;
  for (size_t i = 0; i < plan.axes.size(); ++i) {
    const Axis& axis = plan.axes[i];
    text += formatted("  %-8s %5lld, ranks %lld apart, ", axis.name.c_str(), static_cast<long long>(axis.size),
                      static_cast<long long>(stride));
    text += plan.owners[i] + (axis.joins_gradients ? "; gradients are summed over it\n" : "\n");
    stride *= axis.size;
  }
  return text;
}

// Which part of the chain each stage computes, in chain order.
std::string placement_lines(const Composition& run) {
  if (run.placement.size() < 2) return "units: every rank computes all of them\n";
  double cost = 0;
  for (const PlacedPiece& piece : run.placement) cost += piece.cost;
  std::string text =
      concat("placement of ", run.placement.back().last, " units, in their order, with their share of the work:\n");
  for (const PlacedPiece& piece : run.placement) {
    const std::string where = run.schedule->chunks() > 1 ? concat("stage ", piece.stage, " chunk ", piece.chunk)
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

}  // namespace

// Axes in the mesh's order; several sorts of messages along one stand below its sum.
std::string traffic_text(const Composition& run) {
  std::map<std::string, double> sums;
  for (const auto& t : run.traffics) sums[t.axis] += t.bytes;
  std::string text;
  for (const Axis& axis : run.mesh_plan.axes) {
    if (sums[axis.name] <= 0) continue;
    text += formatted("  %-8s", axis.name.c_str()) + bytes_text(sums[axis.name]) + "\n";
    for (const auto& t : run.traffics)
      if (t.axis == axis.name && t.bytes > 0) text += "    " + bytes_text(t.bytes) + "  " + t.by + ": " + t.what + "\n";
  }
  if (text.empty()) return "";
  return concat("traffic, sent by a rank in a step", run.recompute ? "; what recompute sends again is not counted" : "",
                ":\n", text);
}

std::string plan_headline(const Composition& run) {
  return concat(short_count(static_cast<double>(run.facts.parameters)), " parameters, ", run.run.world_size,
                run.run.world_size == 1 ? " rank (" : " ranks (", run.mesh_plan.text(), "), batch ",
                run.batch.train_batch_size, " = ", run.batch.micro_batch_size, " x ", run.batch.accumulation,
                " accumulated x ", run.mesh_plan.batch_ranks(), " ranks, sequences of ", run.run.seq_length, ", ",
                run.settings.train_steps, " steps\nplugins: ", plugins_text(run));
}

std::string capture_text(const Composition& run) {
  if (run.capture.on) return "capture: steps are recorded after the first few and replayed";
  return run.capture.why_not.empty() ? "" : "capture is off: " + run.capture.why_not;
}

std::string plan_text(const Composition& run) {
  std::string text = plan_headline(run) + "\n" + mesh_lines(run);
  text += "hooks nest, outermost first:";
  for (const NamedStrategy& s : run.strategies) text += " " + s.id;
  text += "\n" + placement_lines(run);
  for (const std::string& line : planned_lines(planned_memory(run), run.facts.parameters, true)) text += line + "\n";
  text += traffic_text(run);
  for (const std::string& note : run.notes) text += note + "\n";
  if (const std::string capture = capture_text(run); !capture.empty()) text += capture + "\n";
  return text + schedule_text(run);
}

}  // namespace drivetrain
