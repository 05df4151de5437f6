// Which piece of the model is on which stage of a pipeline, and which instructions of the stages' programs wait for
// which. Pure data. Thread: const calls from any thread.
#pragma once

#include <optional>
#include <vector>

#include <drivetrain/schedule.h>
#include <drivetrain/step_context.h>

namespace drivetrain {

inline bool sends(Op op) { return op == Op::send_forward || op == Op::send_backward; }
inline bool receives(Op op) { return op == Op::recv_forward || op == Op::recv_backward; }
inline bool computes(Op op) {
  return op == Op::forward || op == Op::backward || op == Op::backward_input || op == Op::backward_weight;
}
// Forward: activations, from a piece to the next one. Backward: gradients, to the previous one.
Direction direction_of(Op op);

// How long one micro-batch takes in a piece of the model, in any unit. A whole backward takes the sum of its halves.
struct PieceTime {
  double forward = 1, backward_input = 1, backward_weight = 1;
};

// Activations (forward) that a piece makes of a micro-batch, or gradients (backward) of what it read.
struct PieceResult {
  Direction direction;
  int64_t piece;
};

// Instructions of all stages in an order in which they can run.
struct StepOrder {
  struct Node {
    Instr instr;
    int64_t stage, piece;
    int64_t reads;  // index of the node whose result it waits for; -1: none
  };
  struct Wait {
    Instr instr;
    int64_t stage, at;   // `instr` is at this index of the stage's program
    PieceResult wanted;  // of the instruction's micro-batch
  };
  int64_t stages = 0;
  std::vector<Node> nodes;    // Each is behind those before it in its program, and behind the one that it reads.
  std::vector<Wait> waiting;  // Where stages wait for each other forever, what each of them waits in; else empty.

  // Sets `ends` to the times at which the nodes end, and returns the latest of them. All stages begin at 0, and
  // messages take no time. `times`: of every piece, in chain order.
  double run(const std::vector<PieceTime>& times, std::vector<double>& ends) const;
};

class ScheduleGraph {
 public:
  struct Place {
    int64_t stage = 0, chunk = 0;
    bool operator==(const Place&) const = default;
  };
  // Implied: programs have no sends and receives, and their computations read each other's results.
  enum class Messages { in_programs, implied };

  // Calls piece() for every chunk of every stage. Keeps no reference to `schedule`. Error(internal) if two chunks are
  // the same piece, or one is no piece of the chain.
  explicit ScheduleGraph(const Schedule& schedule);

  int64_t stages() const { return static_cast<int64_t>(pieces_.size()); }
  int64_t chunks() const { return chunks_; }  // of every stage
  int64_t pieces() const { return static_cast<int64_t>(places_.size()); }
  int64_t piece(const Place& at) const { return pieces_.at(at.stage).at(at.chunk); }
  const Place& place(int64_t piece) const { return places_.at(piece); }

  // Who reads what `from` makes in this direction, and who makes what `at` reads. Nothing at the ends of the chain, and
  // for a chunk that does not exist.
  std::optional<Place> receiver(const Place& from, Direction direction) const;
  std::optional<Place> sender(const Place& at, Direction direction) const;
  // The other end of a send or receive in the program of `stage`; nothing for other instructions.
  std::optional<Place> peer(int64_t stage, const Instr& instr) const;

  // As much of all stages' programs as can run. Their micro-batches are 0 to `micro_batches` - 1.
  StepOrder order(const std::vector<Program>& programs, int64_t micro_batches, Messages messages) const;

 private:
  std::optional<PieceResult> wanted_by(const Instr& instr, const Place& here) const;

  int64_t chunks_;
  std::vector<std::vector<int64_t>> pieces_;  // of each stage, by chunk
  std::vector<Place> places_;                 // of each piece
};

}  // namespace drivetrain
