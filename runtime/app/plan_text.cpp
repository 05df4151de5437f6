#include "app/plan_text.h"

#include <cstdio>

#include "app/memory_report.h"

namespace drivetrain {
namespace {

std::string short_count(double n) {
  char text[32];
  if (n >= 1e9) std::snprintf(text, sizeof text, "%.2fB", n / 1e9);
  else if (n >= 1e6) std::snprintf(text, sizeof text, "%.1fM", n / 1e6);
  else if (n >= 1e4) std::snprintf(text, sizeof text, "%.1fk", n / 1e3);
  else std::snprintf(text, sizeof text, "%.0f", n);
  return text;
}

std::string mesh_text(const Composition& run) {
  std::string text;
  for (const Axis& axis : run.mesh_plan.axes) text += (text.empty() ? "" : " x ") + concat(axis.name, " ", axis.size);
  return text.empty() ? "one rank" : text;
}

std::string plugins_text(const Composition& run) {
  std::string text;
  for (const ChosenPlugin& plugin : run.chosen)
    if (plugin.selection.enabled) text += (text.empty() ? "" : ", ") + plugin.id();
  return text;
}

}  // namespace

std::string plan_headline(const Composition& run) {
  return concat(short_count(static_cast<double>(run.facts.parameters)), " parameters, ", run.run.world_size,
                run.run.world_size == 1 ? " rank (" : " ranks (", mesh_text(run), "), batch ", run.batch.train_batch_size, " = ",
                run.batch.micro_batch_size, " x ", run.batch.accumulation, " accumulated x ", run.mesh_plan.batch_ranks(),
                " ranks, sequences of ", run.run.seq_length, ", ", run.settings.train_steps, " steps\nplugins: ", plugins_text(run));
}

std::string capture_text(const Composition& run) {
  if (run.capture.on) return "capture: steps are recorded after the first few and replayed";
  return run.capture.why_not.empty() ? "" : "capture is off: " + run.capture.why_not;
}

std::string plan_text(const Composition& run) {
  std::string text = plan_headline(run) + "\n";
  text += "mesh, fastest axis first: " + mesh_text(run) + "\n";
  text += "hooks nest, outermost first:";
  for (const NamedStrategy& s : run.strategies) text += " " + s.id;
  text += "\nunits: every rank computes all of them\n";
  for (const std::string& line : planned_lines(planned_memory(run), run.facts.parameters, true)) text += line + "\n";
  for (const std::string& note : run.notes) text += note + "\n";
  if (const std::string capture = capture_text(run); !capture.empty()) text += capture + "\n";
  return text;
}

}  // namespace drivetrain
