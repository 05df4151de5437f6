// Which messages a stage of a pipeline gets and has, by the stages' programs alone: for StageLinks, which moves them,
// and for the plan of their memory. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include <drivetrain/schedule.h>
#include <drivetrain/step_context.h>
#include <drivetrain/toolkit/pipeline/schedule_graph.h>

#include "internal.h"

namespace drivetrain {

struct MessageKey {
  Direction direction;
  int64_t micro, chunk;  // of the receiver
  auto operator<=>(const MessageKey&) const = default;
};

// What a peer's program sends to a stage.
struct ExpectedMessages {
  std::vector<MessageKey> order;
  std::map<MessageKey, size_t> index;  // in it
  std::vector<size_t> confirmed;       // how many messages of this stage the peer has received before it sends this one
};
DRIVETRAIN_INTERNAL ExpectedMessages expected_messages(const ScheduleGraph& graph, int64_t stage, int64_t peer,
                                                       const Program& program_of_peer);

constexpr size_t kReceivesAhead = 2;  // posted beyond the one that is needed

// How many messages a stage has in memory while its program runs for the second time or later: receives that are
// posted, up to the computation that takes them, and what it sent, until the peer is known to have it.
class DRIVETRAIN_INTERNAL HeldMessages {
 public:
  HeldMessages(const Schedule& schedule, int64_t stage, int64_t micro_batches);
  // The program's next instruction is done.
  void pass(const Instr& instr);
  int64_t count() const;

 private:
  struct Peer {
    ExpectedMessages expected;
    size_t posted = 0, taken = 0;    // receives
    size_t sent = 0, confirmed = 0;  // sends
    void post_until(size_t place);
  };
  const ScheduleGraph graph_;
  const int64_t stage_;
  std::map<int64_t, Peer> peers_;
  int64_t within_ = 0;  // between two chunks of the stage
};

}  // namespace drivetrain
