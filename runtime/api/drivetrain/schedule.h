// The step as a program: a schedule emits a short list of instructions per pipeline stage, the runtime interprets it.
// Plain gradient accumulation is the one-stage schedule. Pure data out, nothing else.
// Thread: const calls from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include <drivetrain/plugin.h>

DRIVETRAIN_CONTRACT(schedule)

namespace drivetrain {

enum class Op : uint8_t {
  load,          // the feed's next micro-batch becomes `micro`
  recv_forward,  // activations of `micro` from the stage before, into `slot`
  forward,       // `chunk` of this stage on `micro`
  send_forward,
  recv_backward,
  backward,         // both halves
  backward_input,   // gradients of inputs only
  backward_weight,  // the rest
  send_backward,
};

// Sends do not wait for their receivers, and receives are posted ahead in the order in which the peer's program sends:
// a program only has to name each receive before the computation that reads it,
// and each send after the one that made it.
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
  // of the mesh, along which the stages lie; a schedule of several claims it
  static constexpr const char* kAxis = "pp";
  ~Schedule() override;
  virtual int64_t stages() const = 0;
  virtual int64_t chunks() const { return 1; }  // model pieces per stage
  // The piece of the model, in chain order, that is `chunk` of `stage`. Piece i + 1 reads what piece i returns.
  virtual int64_t piece(int64_t stage, int64_t chunk) const { return chunk * stages() + stage; }
  // Which unit goes where: cuts[i] is the first unit of piece i, pieces in chain order (stages * chunks of them).
  virtual std::vector<int64_t> partition(const std::vector<double>& unit_costs) const = 0;
  virtual Program program(int64_t stage, int64_t micro_batches, Pass pass) const = 0;
  virtual int64_t slots(int64_t stage, int64_t micro_batches) const = 0;  // activations in flight at most
};

}  // namespace drivetrain
