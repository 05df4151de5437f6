// A group's MPI communicator and what passes over it: messages of any length, and the packet that each rank sends every
// other one before a collective moves anything. A packet says what was called, so that ranks that disagree find out
// instead of hanging or mixing data, shows who has come, and carries small data along, so that a short collective is
// one step.
//
// Ownership: buffers are the caller's until the Requests are done. Thread: under the engine's lock. Errors: as
// requests.h.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "call.h"
#include "requests.h"

namespace drivetrain::mpi {

enum Tag : int { kPackets = 1, kSlices, kResults, kHeads, kMessages };

struct Wire {
  MPI_Comm comm = MPI_COMM_NULL;
  int me = 0, size = 1;
  int64_t piece_bytes = 0;  // of each other rank's data that one step of a sum receives

  int64_t most_bytes() const;  // of one MPI message: its count is an int
  void send(Requests& requests, const void* data, int64_t bytes, int to, Tag tag) const;
  void recv(Requests& requests, void* data, int64_t bytes, int from, Tag tag) const;
};

inline constexpr int64_t kInlineBytes = 1024 - static_cast<int64_t>(sizeof(Call));
struct Packet {
  Call call;
  char data[kInlineBytes];
};

// The packets of one collective.
class Packets {
 public:
  // Sends every other rank `call` with the `bytes` (up to kInlineBytes) at `data_for(index)`; empty or null: none.
  using DataFor = std::function<const char*(int index)>;
  void post(const Wire& wire, const Call& call, int64_t bytes, const DataFor& data_for);
  Requests& requests() { return requests_; }
  // After all arrived. Throws Error(communication) if another rank called something else.
  void compare(const Wire& wire, const Call& call, const std::vector<int64_t>& ranks, const std::string& label) const;
  const char* data(int index) const { return from_[index].data; }

 private:
  Requests requests_;
  std::unique_ptr<Packet[]> to_, from_;
};

}  // namespace drivetrain::mpi
