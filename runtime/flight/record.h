// The flight record of a rank: what it did last, kept where it outlives the process. The last calls of the
// communicator's groups, and where the step is. Writing takes a look at the clock and a few stores, and never waits.
//
// Thread: a group's calls come from one thread at a time, several groups may be written at once; whoever reads sees
// entries that may change meanwhile, and leaves out those that do. Times are seconds since the record was made, by the
// monotonic clock of its host.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "flight/own_work.h"
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
DRIVETRAIN_INTERNAL const char* name_of(FlightOp op);  // "all_reduce"
inline bool is_collective(FlightOp op) { return op < FlightOp::send; }

// called: inside of the call that begins it; pending: begun, not waited for; waiting: in Work::wait.
enum class FlightState : uint8_t { called, pending, waiting, done, failed };
DRIVETRAIN_INTERNAL const char* name_of(FlightState state);

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

enum class FlightDoing : uint8_t {
  outside,
  load,
  forward,
  backward,
  backward_weight,
  send,
  receive,
  agree,
  update,
  reduce,
  replay,    // a recorded step is enqueued
  evaluate,  // these two, like `outside`, are in no training step
  save
};
inline constexpr int kFlightDoings = 13;
DRIVETRAIN_INTERNAL const char* name_of(FlightDoing doing);  // "loading a micro-batch"

// Where the rank is in its step.
struct FlightPlace {
  int64_t step = 0;    // 0: before the first
  int64_t micro = -1;  // micro-batch; -1: in none
  FlightDoing doing = FlightDoing::outside;
};

// The numbers of a group's calls: of its collectives, and of its messages by direction and peer.
class CallNumbers {
 public:
  int64_t next(FlightOp op, int64_t peer) { return is_collective(op) ? ++collectives_ : ++messages_[{op, peer}]; }

 private:
  int64_t collectives_ = 0;
  std::map<std::pair<FlightOp, int64_t>, int64_t> messages_;
};

// What to do about a Work that crosses the border of a recording.
inline constexpr const char* kRecordedWhole =
    "A recording holds a call with its wait: both belong into the passes up to flush_grads, or both into the update";

// A call that was recorded with a step and is made again by each replay, with further numbers.
struct RecordedCall {
  std::shared_ptr<CallNumbers> numbers;
  size_t group = 0;
  FlightCall call;
  std::string by;  // the plugin call that made it
  struct Wait {
    bool waited_for = false, recording_over = false;
  };
  std::shared_ptr<Wait> wait = std::make_shared<Wait>();  // shared with its Work
};

class DRIVETRAIN_INTERNAL FlightRecord {
 public:
  static constexpr size_t kEntries = 512, kGroups = 256;
  static constexpr size_t kWorkSteps = 20;  // over which it has its rank's own work

  // `held`: memory of sizeof(Memory) bytes, a descriptor, that outlives this process since the launcher holds it too;
  // -1: none. Throws Error(out_of_memory).
  FlightRecord(int64_t rank, int64_t world_size, int held = -1);
  ~FlightRecord();
  FlightRecord(const FlightRecord&) = delete;
  FlightRecord& operator=(const FlightRecord&) = delete;

  // Of which run it is, and the folder of that run. Main thread, once, before keep_in.
  void belongs_to(uint64_t run, const std::string& output_dir) noexcept;
  // From now on also in a file, which a crash leaves behind. Main thread, once. Throws Error(io).
  void keep_in(const std::string& path);
  // As it is now, also for other hosts that see the file.
  void flush() noexcept;
  // Its end was a good one: the file goes, and whoever holds the memory learns it.
  void forget() noexcept;

  // A group's index for `begin`. `label`: unique among groups. Those beyond kGroups share the last one, "others".
  size_t group(const std::string& label);
  uint64_t begin(size_t group, const FlightCall& call) noexcept;
  void pending(uint64_t serial) noexcept { set_state(serial, FlightState::pending); }
  void waiting(uint64_t serial) noexcept { set_state(serial, FlightState::waiting); }
  void done(uint64_t serial) noexcept { set_state(serial, FlightState::done); }
  void failed(uint64_t serial) noexcept { set_state(serial, FlightState::failed); }
  // The host has waited, which on a device only enqueues a wait: the call stays `waiting` until device_reached.
  void enqueued(uint64_t serial) noexcept;
  // The host has waited for all that the main thread enqueued.
  void device_reached() noexcept;

  // What this thread calls between the two is recorded by the device and not made.
  void recording_begins();
  std::vector<RecordedCall> recording_ends();
  bool is_recording() const noexcept { return recorder_ == std::this_thread::get_id(); }
  std::vector<RecordedCall>& recording() noexcept { return recording_; }
  int64_t recordings() const noexcept { return recordings_; }  // begun so far
  // The device was told to make these calls: they are waited for, by no call of the host.
  void replayed(const std::vector<RecordedCall>& calls) noexcept;

  void at_step(int64_t step) noexcept;
  void at(FlightDoing doing, int64_t micro = -1) noexcept;
  // What comes until aside_over is no training, whatever parts of a step it has, and no work of a step.
  void aside(FlightDoing doing) noexcept;
  void aside_over() noexcept;
  // What plugin call the rank was seen in, for those who read the file. At most 200 bytes are kept.
  void seen_in(const std::string& call) noexcept;
  // Somebody has said that the run does not go on.
  void stall_told() noexcept;

  // The rank's own work since the last time, and into the record. Main thread.
  WorkSeconds take_own_work() noexcept;
  // How often that was, kWorkSteps at most. Any thread.
  int64_t steps_made() const noexcept;

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
  uint64_t write_call(size_t group, const FlightCall& call, FlightState state, int64_t now) noexcept;
  bool is_main_thread() const noexcept { return main_ == std::this_thread::get_id(); }

  const int64_t rank_, world_size_;
  std::atomic<Memory*> memory_;
  std::vector<Memory*> mapped_;  // the earlier one stays, for whoever writes at this moment
  std::string path_;
  std::mutex groups_;

  // The main thread's: that which says where the step is.
  std::atomic<std::thread::id> main_{};
  OwnWork work_;
  bool aside_ = false;
  std::array<WorkSeconds, kWorkSteps> last_work_ = {};  // of the last steps, in turn
  size_t work_steps_ = 0;                               // so far
  std::atomic<std::thread::id> recorder_{};
  std::vector<RecordedCall> recording_;
  std::atomic<int64_t> recordings_ = 0;
};

}  // namespace drivetrain
