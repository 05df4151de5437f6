#include <drivetrain/toolkit/pipeline/timeline.h>

#include <numeric>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

std::string joined_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "\n   " + line;
  return text;
}

std::string wait_text(const StepOrder::Wait& wait, const ScheduleGraph& graph, const StepOrder& order) {
  const int64_t other = graph.place(wait.wanted.piece).stage;
  std::string at = " is done";
  for (const StepOrder::Wait& w : order.waiting)
    if (w.stage == other) at = " is at " + instr_text(w.instr, true);
  return concat("stage ", wait.stage, " waits in ", instr_text(wait.instr, true), " for stage ", other, ", which", at);
}

}  // namespace

double Timeline::bubble() const {
  double busy = 0;
  for (const Stage& stage : stages) busy += stage.busy;
  return busy > 0 ? makespan * static_cast<double>(stages.size()) / busy - 1 : 0;
}

std::vector<PieceTime> piece_times(const std::vector<double>& costs) {
  const double sum = std::accumulate(costs.begin(), costs.end(), 0.0);
  std::vector<PieceTime> times;
  for (const double cost : costs) {
    const double t = sum > 0 ? cost * static_cast<double>(costs.size()) / sum : 1;
    times.push_back({t, t, t});
  }
  return times;
}

Timeline simulate(const Schedule& schedule, int64_t micro_batches, Pass pass, const std::vector<PieceTime>& times) {
  const ScheduleGraph graph(schedule);
  if (!times.empty() && static_cast<int64_t>(times.size()) != graph.pieces())
    throw fail(ErrorCode::internal, "times of ", times.size(), " pieces for a schedule of ", graph.pieces());
  Timeline line{{}, graph.chunks(), micro_batches};
  std::vector<Program> programs;
  std::vector<std::string> problems, waiting;
  for (int64_t s = 0; s < graph.stages(); ++s) {
    programs.push_back(schedule.program(s, micro_batches, pass));
    const int64_t slots = schedule.slots(s, micro_batches);
    const ProgramCheck check = check_program(graph, s, programs.back(), micro_batches, pass, slots);
    problems.insert(problems.end(), check.problems.begin(), check.problems.end());
    line.stages.push_back({{}, 0, slots, check.peak_in_flight});
  }
  if (!problems.empty()) throw fail(ErrorCode::plugin, "the schedule's programs are wrong:", joined_lines(problems));

  const StepOrder order = graph.order(programs, micro_batches, ScheduleGraph::Messages::in_programs);
  for (const StepOrder::Wait& wait : order.waiting) waiting.push_back(wait_text(wait, graph, order));
  if (!waiting.empty()) throw fail(ErrorCode::plugin, "the stages wait for each other forever:", joined_lines(waiting));

  std::vector<double> ends;
  line.makespan = order.run(times.empty() ? std::vector<PieceTime>(static_cast<size_t>(graph.pieces())) : times, ends);
  for (size_t n = 0; n < ends.size(); ++n) {
    const StepOrder::Node& node = order.nodes[n];
    Timeline::Stage& stage = line.stages[static_cast<size_t>(node.stage)];
    const double start = stage.entries.empty() ? 0 : stage.entries.back().end;
    if (!receives(node.instr.op)) stage.busy += ends[n] - start;
    stage.entries.push_back({node.instr, start, ends[n]});
  }
  return line;
}

}  // namespace drivetrain
