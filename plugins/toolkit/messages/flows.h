// The collectives as flows of messages. Sums: every rank receives its slice from all others, piece by piece, adds it by
// the fixed tree, and, in an all_reduce, sends the result to all; the next piece travels meanwhile. So the bits are
// those of every other communicator, whatever the carrier does. The messages of a flow are posted in an order that
// depends on the call alone, which is what makes them match; a group runs one flow at a time.
//
// Ownership: an operation keeps tensors, packets and flow until it is done. Thread: under the carrier's mutex.
#pragma once

#include <drivetrain/toolkit/communicator/memory_use.h>

#include "wire.h"

namespace drivetrain::toolkit::messages {

struct Message {
  Call call;
  at::Tensor tensor;
};

struct Operation {
  Call call;  // of messages: the first one
  std::vector<at::Tensor> tensors;
  std::vector<Message> messages;    // empty: a collective
  Counts counts;                    // of all_to_all_counts
  Packets::PayloadFor payload_for;  // what its packets carry; read when it begins
  Use use;
  Packets packets;
  Flow flow;
  bool begun = false, compared = false, done = false;
  bool collective() const { return messages.empty(); }
  // Of two messages from here to there the first is posted first, which is what makes them match.
  bool shares_an_end(const Operation& other) const;
  int64_t moved() const { return (compared ? 1 : 0) + flow.moved(); }
};
using OperationPtr = std::shared_ptr<Operation>;

// They begin when the packets are there. `in` and `out` as in the calls of Group; they and `wire` outlive the flow.
Flow all_reduce(Operation& op, const Wire& wire, char* data);
Flow reduce_scatter(Operation& op, const Wire& wire, char* out, const char* in);
Flow all_gather(Operation& op, const Wire& wire, char* out, const char* in);
Flow all_to_all(Operation& op, const Wire& wire, char* out, const char* in);
Flow all_to_all_counts(Operation& op, const Wire& wire, char* out, const char* in);
Flow broadcast(Operation& op, const Wire& wire, char* data);
Flow barrier();
// Sends and receives that belong together. Throws Error(communication) where a receive does not fit its send.
Flow messages(Operation& op, const Wire& wire, const std::vector<int64_t>& ranks, const std::string& label);

}  // namespace drivetrain::toolkit::messages
