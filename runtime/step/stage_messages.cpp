#include "step/stage_messages.h"

#include <algorithm>
#include <set>

namespace drivetrain {

ExpectedMessages expected_messages(const ScheduleGraph& graph, int64_t stage, int64_t peer,
                                   const Program& program_of_peer) {
  ExpectedMessages expected;
  size_t received = 0;
  for (const Instr& instr : program_of_peer) {
    const auto other = graph.peer(peer, instr);
    if (!other || other->stage != stage) continue;
    if (receives(instr.op)) {
      ++received;
      continue;
    }
    const MessageKey key = {direction_of(instr.op), instr.micro, other->chunk};
    expected.index[key] = expected.order.size();
    expected.order.push_back(key);
    expected.confirmed.push_back(received);
  }
  return expected;
}

HeldMessages::HeldMessages(const Schedule& schedule, int64_t stage, int64_t micro_batches)
    : graph_(schedule), stage_(stage) {
  std::set<int64_t> peers;
  for (const Instr& instr : schedule.program(stage, micro_batches, Pass::train))
    if (const auto other = graph_.peer(stage, instr); other && other->stage != stage) peers.insert(other->stage);
  for (const int64_t peer : peers) {
    Peer& from = peers_[peer];
    from.expected = expected_messages(graph_, stage, peer, schedule.program(peer, micro_batches, Pass::train));
    from.post_until(kReceivesAhead);
  }
}

void HeldMessages::Peer::post_until(size_t place) { posted = std::max(posted, std::min(place, expected.order.size())); }

void HeldMessages::pass(const Instr& instr) {
  const auto other = graph_.peer(stage_, instr);
  if (!other) return;
  if (other->stage == stage_) {
    within_ += sends(instr.op) ? 1 : -1;
    return;
  }
  Peer& peer = peers_.at(other->stage);
  if (sends(instr.op)) {
    ++peer.sent;
    return;
  }
  const size_t place = peer.expected.index.at({direction_of(instr.op), instr.micro, instr.chunk});
  peer.post_until(place + 1 + kReceivesAhead);
  ++peer.taken;
  peer.confirmed = std::max(peer.confirmed, peer.expected.confirmed[place]);
}

int64_t HeldMessages::count() const {
  size_t held = 0;
  for (const auto& [stage, peer] : peers_) held += peer.posted - peer.taken + peer.sent - peer.confirmed;
  return static_cast<int64_t>(held) + within_;
}

}  // namespace drivetrain
