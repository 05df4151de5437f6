#include "step/timeline.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

std::string joined_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "\n   " + line;
  return text;
}

// Where each piece lives, and when what it sends is there.
class PieceMap {
 public:
  PieceMap(const Schedule& schedule, int64_t micro_batches)
      : pieces_(schedule.stages() * schedule.chunks()),
        micro_batches_(micro_batches),
        stages_(static_cast<size_t>(pieces_), -1) {
    for (int64_t s = 0; s < schedule.stages(); ++s)
      for (int64_t c = 0; c < schedule.chunks(); ++c) {
        const int64_t piece = schedule.piece(s, c);
        if (piece < 0 || piece >= pieces_ || stages_[static_cast<size_t>(piece)] >= 0)
          throw fail(ErrorCode::internal, "chunk ", c, " of stage ", s, " is piece ", piece,
                     ", which is another's or none of ", pieces_);
        stages_[static_cast<size_t>(piece)] = s;
      }
    activations_.resize(static_cast<size_t>(pieces_ * micro_batches));
    gradients_.resize(activations_.size());
  }
  int64_t stage_of(int64_t piece) const { return stages_[static_cast<size_t>(piece)]; }
  std::optional<double>& activation(int64_t piece, int64_t micro) { return activations_[index(piece, micro)]; }
  std::optional<double>& gradient(int64_t piece, int64_t micro) { return gradients_[index(piece, micro)]; }

 private:
  size_t index(int64_t piece, int64_t micro) const { return static_cast<size_t>(piece * micro_batches_ + micro); }
  const int64_t pieces_, micro_batches_;
  std::vector<int64_t> stages_;                                 // of each piece
  std::vector<std::optional<double>> activations_, gradients_;  // when they were sent
};

class Simulation {
 public:
  Simulation(const Schedule& schedule, int64_t micro_batches, Pass pass, const std::vector<PieceTime>& times)
      : schedule_(schedule), times_(times), map_(schedule, micro_batches) {
    const int64_t pieces = schedule.stages() * schedule.chunks();
    if (times_.empty()) times_.resize(static_cast<size_t>(pieces));
    if (static_cast<int64_t>(times_.size()) != pieces)
      throw fail(ErrorCode::internal, "times of ", times_.size(), " pieces for a schedule of ", pieces);
    line_.chunks = schedule.chunks(), line_.micro_batches = micro_batches;
    std::vector<std::string> problems;
    for (int64_t s = 0; s < schedule.stages(); ++s) {
      programs_.push_back(schedule.program(s, micro_batches, pass));
      const ProgramCheck check = check_program(schedule, s, programs_.back(), micro_batches, pass);
      problems.insert(problems.end(), check.problems.begin(), check.problems.end());
      line_.stages.push_back({{}, 0, schedule.slots(s, micro_batches), check.peak_in_flight});
    }
    if (!problems.empty())
      throw fail(ErrorCode::internal, "the schedule's programs are wrong:", joined_lines(problems));
  }

  Timeline run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (int64_t s = 0; s < schedule_.stages(); ++s)
        while (step(s)) progress = true;
    }
    std::vector<std::string> waiting;
    for (int64_t s = 0; s < schedule_.stages(); ++s)
      if (done(s) < programs_[static_cast<size_t>(s)].size()) waiting.push_back(who_waits(s));
    if (!waiting.empty())
      throw fail(ErrorCode::internal, "the stages wait for each other forever:", joined_lines(waiting));
    return std::move(line_);
  }

 private:
  size_t done(int64_t stage) const { return line_.stages[static_cast<size_t>(stage)].entries.size(); }
  const Instr& next(int64_t stage) const { return programs_[static_cast<size_t>(stage)][done(stage)]; }

  // The next instruction of a stage; false if there is none, or what it waits for was not sent yet.
  bool step(int64_t s) {
    Timeline::Stage& stage = line_.stages[static_cast<size_t>(s)];
    if (done(s) == programs_[static_cast<size_t>(s)].size()) return false;
    const Instr& i = next(s);
    const int64_t piece = schedule_.piece(s, i.chunk);
    const double start = stage.entries.empty() ? 0 : stage.entries.back().end;
    double end = start + duration(i.op, piece);
    if (i.op == Op::recv_forward || i.op == Op::recv_backward) {
      const auto sent =
          i.op == Op::recv_forward ? map_.activation(piece - 1, i.micro) : map_.gradient(piece + 1, i.micro);
      if (!sent) return false;
      end = std::max(start, *sent);
    } else {
      stage.busy += end - start;
    }
    if (i.op == Op::send_forward) map_.activation(piece, i.micro) = end;
    if (i.op == Op::send_backward) map_.gradient(piece, i.micro) = end;
    stage.entries.push_back({i, start, end});
    line_.makespan = std::max(line_.makespan, end);
    return true;
  }

  double duration(Op op, int64_t piece) const {
    const PieceTime& t = times_[static_cast<size_t>(piece)];
    switch (op) {
      case Op::forward:
        return t.forward;
      case Op::backward:
        return t.backward_input + t.backward_weight;
      case Op::backward_input:
        return t.backward_input;
      case Op::backward_weight:
        return t.backward_weight;
      default:
        return 0;
    }
  }

  std::string who_waits(int64_t s) const {
    const Instr& i = next(s);
    const int64_t from = schedule_.piece(s, i.chunk) + (i.op == Op::recv_forward ? -1 : 1);
    const int64_t other = map_.stage_of(from);
    const std::string at = done(other) == programs_[static_cast<size_t>(other)].size()
                               ? " is done"
                               : " is at " + instr_text(next(other), true);
    return concat("stage ", s, " waits in ", instr_text(i, true), " for stage ", other, ", which", at);
  }

  const Schedule& schedule_;
  std::vector<PieceTime> times_;
  PieceMap map_;
  std::vector<Program> programs_;
  Timeline line_;
};

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
  return Simulation(schedule, micro_batches, pass, times).run();
}

}  // namespace drivetrain
