// The flight record of a rank: what it did last, kept where it outlives the process. The last calls of the
// communicator's groups, and where the step is. Writing takes a look at the clock and a few stores, and never waits.
//
// Thread: a group's calls come from one thread at a time, several groups may be written at once; whoever reads sees
// entries that may change meanwhile, and leaves out those that do. Times are seconds since the record was made, by the
// monotonic clock of its host.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "internal.h"

namespace drivetrain {

enum class FlightOp : uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  barrier,
  share,
  send,
  recv
};
inline constexpr int kFlightOps = 9;
const char* name_of(FlightOp op);  // "all_reduce"
inline bool is_collective(FlightOp op) { return op < FlightOp::send; }

// called: inside of the call that begins it; pending: begun, not waited for; waiting: in Work::wait.
enum class FlightState : uint8_t { called, pending, waiting, done, failed };
const char* name_of(FlightState state);

// What a call is about. `number`: from 1 on, of the group's collectives, or of the messages to or from one peer.
struct FlightCall {
  FlightOp op = FlightOp::barrier;
  int64_t number = 0;
  int64_t bytes = 0;  // 0 where ranks have different ones
  int8_t dtype = -1;  // of at::ScalarType; -1: none
  int64_t peer = -1;  // global rank: of send and recv, and the root of a broadcast; -1: none
};

// An entry as it was read.
struct FlightEntry {
  uint64_t serial = 0;  // of the rank, from 1 on
  std::string group;
  FlightCall call;
  FlightState state = FlightState::done;
  double called_s = 0, waited_s = 0, done_s = 0;  // 0: not yet
};

enum class FlightDoing : uint8_t { outside, load, forward, backward, backward_weight, send, receive, agree, update };
const char* name_of(FlightDoing doing);  // "backward"

// Where the rank is in its step.
struct FlightPlace {
  int64_t step = 0;    // 0: before the first
  int64_t micro = -1;  // micro-batch; -1: in none
  FlightDoing doing = FlightDoing::outside;
};

class DRIVETRAIN_INTERNAL FlightRecord {
 public:
  static constexpr size_t kEntries = 512, kGroups = 256;

  FlightRecord(int64_t rank, int64_t world_size);
  ~FlightRecord();
  FlightRecord(const FlightRecord&) = delete;
  FlightRecord& operator=(const FlightRecord&) = delete;

  // From now on also in a file, which a crash leaves behind. Main thread, once. Throws Error(io).
  void keep_in(const std::string& path);
  // Its end was a good one: the file goes.
  void forget() noexcept;

  // A group's index for `begin`. `label`: unique among groups. Those beyond kGroups share the last one, "others".
  size_t group(const std::string& label);
  uint64_t begin(size_t group, const FlightCall& call) noexcept;
  void pending(uint64_t serial) noexcept { set_state(serial, FlightState::pending); }
  void waiting(uint64_t serial) noexcept { set_state(serial, FlightState::waiting); }
  void done(uint64_t serial) noexcept { set_state(serial, FlightState::done); }
  void failed(uint64_t serial) noexcept { set_state(serial, FlightState::failed); }

  void at_step(int64_t step) noexcept;
  void at(FlightDoing doing, int64_t micro = -1) noexcept;
  // What plugin call the rank was seen in, for those who read the file. At most 200 bytes are kept.
  void seen_in(const std::string& call) noexcept;

  // Changes with everything that is written, but for seen_in.
  uint64_t progress() const noexcept;
  double now() const noexcept;
  FlightPlace place() const;
  std::vector<FlightEntry> entries() const;  // oldest first
  // Every group that the rank is in, and the number of the last collective that it began there; 0: none yet.
  std::map<std::string, int64_t> reached() const;

  int64_t rank() const { return rank_; }
  int64_t world_size() const { return world_size_; }

  struct Memory;  // as it is in the file

 private:
  void set_state(uint64_t serial, FlightState state) noexcept;

  const int64_t rank_, world_size_;
  std::atomic<Memory*> memory_;
  std::vector<Memory*> mapped_;  // the earlier one stays, for whoever writes at this moment
  std::string path_;
  std::mutex groups_;
};

// A record that a run left behind.
struct LeftRecord {
  int64_t rank = 0, world_size = 1, pid = 0;
  std::string host, call;  // the plugin call that it was last seen in; "": none
  std::string written;     // time of day of its last change, "2026-11-23 21:04:05 UTC"
  double last_s = 0;       // of the same, since the record was made
  FlightPlace place;
  std::vector<FlightEntry> entries;
  std::map<std::string, int64_t> reached;
};
// Throws Error(io): no such file, or what is wrong with it.
DRIVETRAIN_INTERNAL LeftRecord read_record(const std::string& path);

}  // namespace drivetrain
