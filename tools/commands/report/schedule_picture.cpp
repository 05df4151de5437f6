#include "report/schedule_picture.h"

#include <algorithm>
#include <cmath>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

constexpr size_t kMostRows = 16;

// Columns of text per unit of time: the shortest computation has room for its name, unless it is very short.
double columns_per_unit(const Timeline& line) {
  double shortest = line.makespan, longest = 0;
  size_t name = 2;
  for (const Timeline::Stage& stage : line.stages)
    for (const Timeline::Entry& e : stage.entries) {
      if (!computes(e.instr.op)) continue;
      shortest = std::min(shortest, e.end - e.start), longest = std::max(longest, e.end - e.start);
      name = std::max(name, instr_text(e.instr, line.chunks > 1).size());
    }
  return longest > 0 ? static_cast<double>(name + 1) / std::max(shortest, longest / 6) : 1;
}

std::string row_text(const Timeline::Stage& stage, bool with_chunk, double scale) {
  std::string row;
  for (const Timeline::Entry& e : stage.entries) {
    if (!computes(e.instr.op)) continue;
    const size_t begin = static_cast<size_t>(std::llround(e.start * scale)),
                 end = static_cast<size_t>(std::llround(e.end * scale));
    std::string box = instr_text(e.instr, with_chunk);
    const size_t name = box.size();
    box.resize(std::max<size_t>(end - begin, 1), '-');
    if (box.size() > name) box.back() = ' ';
    row.resize(begin, ' ');
    row += box;
  }
  return row;
}

std::string picture_title(const RunPlan& plan, const Timeline& line) {
  const PlannedPlugin* const schedule = plan.plugin(Schedule::kKind);
  return concat(schedule ? schedule->name : Schedule::kKind, ": ", line.stages.size(),
                line.stages.size() == 1 ? " stage" : " stages",
                line.chunks > 1 ? concat(" of ", line.chunks, " chunks") : std::string(), ", ", line.micro_batches,
                line.micro_batches == 1 ? " micro-batch" : " micro-batches", ", bubble ",
                formatted("%.1f %%", 100 * line.bubble()));
}

}  // namespace

void add_timeline(RunPlan& plan, const Schedule& schedule) {
  const int64_t pieces = plan.schedule.stages * plan.schedule.chunks,
                micro_batches = std::max<int64_t>(plan.batch.accumulation, 1);
  plan.schedule.timeline.reset();
  if (pieces * micro_batches > kMostTimelineBoxes) return;
  std::vector<double> costs;
  for (const PlacedPiece& piece : plan.placement) costs.push_back(piece.cost);
  if (static_cast<int64_t>(costs.size()) != pieces) costs.clear();
  plan.schedule.timeline = simulate(schedule, micro_batches, Pass::train, piece_times(costs));
}

std::string timeline_text(const Timeline& line, size_t width) {
  const double scale = columns_per_unit(line);
  const size_t whole = static_cast<size_t>(std::llround(line.makespan * scale)), rows = line.stages.size();
  const std::string gap = " ... ";
  std::string text;
  for (size_t s = 0; s < rows; ++s) {
    if (rows > kMostRows && s == kMostRows / 2) {
      text += "  ...\n";
      s = rows - kMostRows / 2;
    }
    std::string row = row_text(line.stages[s], line.chunks > 1, scale);
    row.resize(whole, ' ');
    if (whole > width) row.replace((width - gap.size()) / 2, whole - width + gap.size(), gap);
    row.erase(row.find_last_not_of(' ') + 1);
    std::string label = concat("  stage ", s);
    label.resize(std::max<size_t>(label.size() + 2, 12), ' ');
    text += label + row + "\n";
  }
  return text;
}

std::string schedule_text(const RunPlan& plan) {
  if (plan.schedule.stages == 1) return "";
  const auto& line = plan.schedule.timeline;
  if (!line) return "";
  std::string kept;
  for (const Timeline::Stage& stage : line->stages) kept += concat(kept.empty() ? "" : " ", stage.peak_in_flight);
  return concat("schedule ", picture_title(plan, *line), " (idle over work, backward twice a forward)\n",
                timeline_text(*line), "  activations kept by stage, of a micro-batch",
                line->chunks > 1 ? " in a chunk" : "", " each: ", kept, "\n");
}

std::string schedule_svg(const RunPlan& plan) {
  const auto& line = plan.schedule.timeline;
  if (!line)
    throw fail(ErrorCode::config, "--svg: ", plan.schedule.stages, " stages x ", plan.schedule.chunks, " chunks x ",
               plan.batch.accumulation, " micro-batches are too many boxes to draw (", kMostTimelineBoxes, " at most)");
  return timeline_svg(*line, picture_title(plan, *line));
}

}  // namespace drivetrain
