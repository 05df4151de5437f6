// Whether one stage's program makes sense by itself, without tensors. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/toolkit/pipeline/schedule_graph.h>

namespace drivetrain {

struct ProgramCheck {
  std::vector<std::string> problems;  // the first dozen
  int64_t peak_in_flight = 0;         // activations alive at once
};

// Every micro-batch loaded before its first use; in each chunk received, forward, sent, received back, backward (in one
// or as two halves) and sent back once and in this order, as far as the piece has neighbours; slots without clash and
// less than `slots`, which is what Schedule::slots promises.
ProgramCheck check_program(const ScheduleGraph& graph, int64_t stage, const Program& program, int64_t micro_batches,
                           Pass pass, int64_t slots);

// "F3", or "F3.1" where there are several chunks: a computation as people write it. Others by name: "recv_forward 3".
std::string instr_text(const Instr& instr, bool with_chunk);

}  // namespace drivetrain
