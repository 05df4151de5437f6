#include <drivetrain/toolkit/pipeline/schedule_graph.h>

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

double duration(Op op, const PieceTime& time) {
  if (op == Op::forward) return time.forward;
  return (op == Op::backward || op == Op::backward_input ? time.backward_input : 0) +
         (op == Op::backward || op == Op::backward_weight ? time.backward_weight : 0);
}

}  // namespace

Direction direction_of(Op op) {
  const bool forward = op == Op::recv_forward || op == Op::forward || op == Op::send_forward;
  return forward ? Direction::forward : Direction::backward;
}

double StepOrder::run(const std::vector<PieceTime>& times, std::vector<double>& ends) const {
  std::vector<double> clocks(stages);
  ends.resize(nodes.size());
  double last = 0;
  for (size_t n = 0; n < nodes.size(); ++n) {
    double& clock = clocks[nodes[n].stage];
    if (nodes[n].reads >= 0) clock = std::max(clock, ends[nodes[n].reads]);
    ends[n] = clock += duration(nodes[n].instr.op, times[nodes[n].piece]);
    last = std::max(last, clock);
  }
  return last;
}

ScheduleGraph::ScheduleGraph(const Schedule& schedule)
    : chunks_(schedule.chunks()), pieces_(schedule.stages()), places_(stages() * chunks_, Place{-1, -1}) {
  for (int64_t s = 0; s < stages(); ++s)
    for (int64_t c = 0; c < chunks_; ++c) {
      const int64_t piece = schedule.piece(s, c);
      if (piece < 0 || piece >= pieces() || place(piece).stage >= 0)
        throw fail(ErrorCode::plugin, "chunk ", c, " of stage ", s, " is piece ", piece,
                   ", which is another's or none of ", pieces());
      places_[piece] = {s, c};
      pieces_[s].push_back(piece);
    }
}

std::optional<ScheduleGraph::Place> ScheduleGraph::receiver(const Place& from, Direction direction) const {
  if (from.chunk < 0 || from.chunk >= chunks_) return std::nullopt;
  const int64_t to = piece(from) + (direction == Direction::forward ? 1 : -1);
  return to >= 0 && to < pieces() ? std::optional(place(to)) : std::nullopt;
}

std::optional<ScheduleGraph::Place> ScheduleGraph::sender(const Place& at, Direction direction) const {
  return receiver(at, direction == Direction::forward ? Direction::backward : Direction::forward);
}

std::optional<ScheduleGraph::Place> ScheduleGraph::peer(int64_t stage, const Instr& instr) const {
  if (sends(instr.op)) return receiver({stage, instr.chunk}, direction_of(instr.op));
  return receives(instr.op) ? sender({stage, instr.chunk}, direction_of(instr.op)) : std::nullopt;
}

std::optional<PieceResult> ScheduleGraph::wanted_by(const Instr& instr, const Place& here) const {
  const Direction direction = direction_of(instr.op);
  if (const auto from = sender(here, direction)) return PieceResult{direction, piece(*from)};
  if (direction == Direction::forward) return std::nullopt;
  return PieceResult{Direction::forward, piece(here)};  // the last piece's backward begins with its own forward
}

// In rounds that take each stage as far as it comes, until none of them moves.
StepOrder ScheduleGraph::order(const std::vector<Program>& programs, int64_t micro_batches, Messages messages) const {
  StepOrder order{stages(), {}, {}};
  std::vector<size_t> done(programs.size());
  std::vector<int64_t> makers(2 * pieces() * micro_batches, -1);  // the node of every result, once there is one
  const auto maker = [&](const PieceResult& result, int64_t micro) -> int64_t& {
    const int64_t row = result.piece + (result.direction == Direction::forward ? 0 : pieces());
    return makers.at(row * micro_batches + micro);
  };
  for (bool progress = true; progress;) {
    progress = false;
    order.waiting.clear();
    for (int64_t s = 0; s < stages(); ++s)
      for (; done[s] < programs[s].size(); ++done[s], progress = true) {
        const Instr& i = programs[s][done[s]];
        const bool direct = messages == Messages::implied && computes(i.op) && i.op != Op::backward_weight;
        const auto wanted = direct || receives(i.op) ? wanted_by(i, {s, i.chunk}) : std::nullopt;
        const int64_t source = wanted ? maker(*wanted, i.micro) : -1;
        if (wanted && source < 0) {
          order.waiting.push_back({i, s, static_cast<int64_t>(done[s]), *wanted});
          break;
        }
        const int64_t here = piece({s, i.chunk});
        if (direct || sends(i.op))
          maker({direction_of(i.op), here}, i.micro) = static_cast<int64_t>(order.nodes.size());
        order.nodes.push_back({i, s, here, source});
      }
  }
  return order;
}

}  // namespace drivetrain
