// The schedule of micro-batches and pipeline stages. For each stage it returns a program, a list of instructions, which
// the runtime interprets in every step. Gradient accumulation is a schedule of one stage.
// All calls are const, return data only, and always return the same for the same arguments. They are made while the run
// is planned and before the first step, never in a step. Thread: main; must be safe from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include <drivetrain/plugin.h>

DRIVETRAIN_CONTRACT(schedule)

namespace drivetrain {

enum class Op : uint8_t {
  load,             // the next micro-batch of the dataset gets the index `micro`
  recv_forward,     // receive the input activations of `chunk` for `micro`; they take `slot`
  forward,          // run `chunk` of this stage on `micro`
  send_forward,     // send its output activations
  recv_backward,    // receive the gradients of its outputs
  backward,         // compute all gradients
  backward_input,   // compute the gradients of the inputs only
  backward_weight,  // compute the remaining gradients; follows backward_input
  send_backward,    // send the gradients of its inputs
};

// Sends do not wait for their receivers. The runtime posts receives ahead, in the order in which the peer's program
// sends. So a program lists each receive before the computation that reads it, and each send after the computation that
// made it. The slots number the activations that a stage holds: an activation takes its slot from its receive (or
// forward, without one) to the end of its backward.
struct Instr {
  Op op;
  int16_t micro = 0, chunk = 0, slot = 0;
  bool operator==(const Instr&) const = default;
};
using Program = std::vector<Instr>;

enum class Pass { train, forward_only };

class DRIVETRAIN_API Schedule : public Plugin {
 public:
  static constexpr const char* kKind = "schedule";
  // The mesh axis of the stages. A schedule of several stages claims it in `plan`.
  static constexpr const char* kAxis = "pp";
  ~Schedule() override;
  virtual int64_t stages() const = 0;           // at least 1
  virtual int64_t chunks() const { return 1; }  // pieces of the model per stage (virtual stages), at least 1
  // The index, in the order of the forward pass, of the piece that is `chunk` of `stage`. The pieces of all stages are
  // 0 to stages() * chunks() - 1, each once. Piece i + 1 reads what piece i returns.
  virtual int64_t piece(int64_t stage, int64_t chunk) const { return chunk * stages() + stage; }
  // unit_costs: one entry per unit (Model::cost). Returns one entry per piece: the index of its first unit, ascending
  // from 0. Throws Error(config) if the model has too few units.
  virtual std::vector<int64_t> partition(const std::vector<double>& unit_costs) const = 0;
  // The program of one stage for a step of `micro_batches`. The runtime checks it before the first step (order, pairs
  // of sends and receives, slots).
  virtual Program program(int64_t stage, int64_t micro_batches, Pass pass) const = 0;
  // The number of slots that the training program of `stage` uses.
  virtual int64_t slots(int64_t stage, int64_t micro_batches) const = 0;
};

}  // namespace drivetrain
