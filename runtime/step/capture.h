// A step as recordings: whether a run may have them, and a part of a step that is recorded once and replayed from then
// on.
//
// Source: CUDA graphs as LibTorch wraps them: work runs as it is in the first steps, so that handles, workspaces and
// caches are there, then it is recorded and enqueued as one piece. What the host does inside a part happens while it
// runs or is recorded, and not in replays: callers keep what changes from step to step outside of the part.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/options.h>

#include "config/run_settings.h"
#include "contract/device_runtime.h"
#include "flight/record.h"
#include "internal.h"

namespace drivetrain {

// What the choice depends on.
struct CaptureFacts {
  Capture wanted = Capture::automatic;
  std::string device;  // "cpu", "cuda"
  bool training = true;
  double hidden_dropout = 0, attention_dropout = 0;
  bool documents = false;                // DatasetFacts::documents
  int64_t micro_batches = 1;             // of a step
  std::vector<std::string> acting;       // ids of the chosen plugins that act inside a step
  std::vector<std::string> capturables;  // ids of those that said their part may be recorded
  std::vector<std::string> when_asked;   // of those that said so for who asks (toolkit/recorded_when_asked.h)
  std::multimap<std::string, std::string> in_the_way{};  // of those that said why not, with it (toolkit/not_recorded.h)
};
struct CaptureChoice {
  bool on = false;
  std::string why_not;  // empty where nobody could expect it to be on
};

// "auto" takes what is possible and seen; `true` adds a problem that names everything in the way.
DRIVETRAIN_INTERNAL CaptureChoice choose_capture(const CaptureFacts& facts, const Position& where, Problems& problems);

// One part of every step of one program. Main thread of a rank.
class DRIVETRAIN_INTERNAL RecordedPart {
 public:
  // `pool`: DeviceRuntime::new_graph_pool. `warm_up`: how many times the part runs as it is before it is recorded.
  // `flight`: of the rank, which outlives this; null: none is kept.
  RecordedPart(DeviceRuntime& runtime, const at::Device& device, int64_t pool, int64_t warm_up,
               FlightRecord* flight = nullptr);

  // Whether `run` will replay: then `work` is not called.
  bool replays() const { return graph_ != nullptr; }
  // Enqueues the work, one way or the other. What `work` throws while it is recorded leaves nothing recorded.
  void run(const std::function<void()>& work);

 private:
  std::unique_ptr<DeviceGraph> record(const std::function<void()>& work);

  DeviceRuntime& runtime_;
  const at::Device device_;
  const int64_t pool_;
  int64_t warm_up_;
  FlightRecord* const flight_;
  std::unique_ptr<DeviceGraph> graph_;
  std::vector<RecordedCall> calls_;  // of the communicator, which each replay makes again
};

}  // namespace drivetrain
