// Saves checkpoints while a run trains: asks the policies after every step, copies the state, writes it (on a thread of
// its own if the store is asynchronous), and lets all ranks agree on whether the checkpoint is complete.
//
// A save whose predecessor is still being written waits for it, and says so, unless the policies leave it out. What
// fails on any rank fails the save on all of them, and they act on it after the same step. Ranks that have come to hold
// other values than each other (copies.h) end the run whatever the store says.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <drivetrain/checkpoint_policy.h>
#include <drivetrain/log.h>
#include <drivetrain/mesh.h>

#include "checkpoint/host_copies.h"
#include "checkpoint/retention.h"
#include "internal.h"
#include "plan/named_policy.h"
#include "rendezvous/rendezvous.h"
#include "step/trainer.h"

namespace drivetrain {

// What the saver uses of a run; all of it outlives the saver.
struct SaverParts {
  CheckpointStore& store;
  std::string store_id;
  std::vector<NamedPolicy> policies;
  Store& exchange;
  RankEnvironment environment;
  Log& log;
  const Mesh& mesh;
  RunState state;
  Value facts;  // of the run, for every checkpoint: an object
  int64_t train_steps = 0;
  // Complete tags that rank 0 removes before it commits the first checkpoint.
  std::vector<std::string> left_behind{};
  // Called on rank 0 with the tag of a checkpoint that is complete, on the save's thread. Does not throw.
  std::function<void(const std::string& tag)> on_commit{};
  std::string run_id{};  // of this run, as `facts` has it; empty: all checkpoints are its own
  // Throws where the run's folder is another one than at its start. Before each save, on every rank; on rank 0 also
  // before a checkpoint becomes complete and before one is removed, on the save's thread. Empty: nobody asks.
  std::function<void()> check_place{};
};

class DRIVETRAIN_INTERNAL Saver final : public BetweenSteps {
 public:
  explicit Saver(SaverParts parts);
  // Waits for a save that is being written.
  ~Saver() override;

  // Before the first step: the ranks agree on who writes what, which a save need not wait for then. They do it again
  // after the first update where that has made more state. Collective.
  void prepare();

  Beside beside() override;
  void before_update() override;
  uint64_t due(const StepResult& result, const Value& figures, bool last) override;
  bool waits_for_ranks() const override { return !parts_.store.asynchronous(); }
  std::string policies_text(uint64_t policies) const override;
  void after_step(const StepResult& result, const Value& figures, bool save, bool last) override;
  // Waits until the last save is complete. Throws what failed in it, unless the store goes on without it.
  void finish();
  // The tag that is being written beside training; empty: none.
  std::string being_written() const;
  // Waits until the save beside training is written, complete or not; false: it took longer.
  bool wait_until_written(double seconds);
  // Tag of the last save that is complete on all ranks; "" before the first.
  const std::string& last_tag() const { return last_tag_; }
  int64_t last_step() const { return last_step_; }

 private:
  struct Save;
  void begin(int64_t step, const Value& figures);
  std::unique_ptr<Save> snapshot(int64_t step, const Value& figures);
  static void compare(Save& save);
  void write(Save& save) noexcept;
  std::string agree(Save& save, const Value& mine);
  std::string reason_of(const Error& failure) const;
  void write_beside_training();
  void choose(const std::vector<HeldPart>& parts, const std::string& round);
  void settle();
  void join();  // waits for the thread and acts on the outcome of its save

  const SaverParts parts_;
  Retention retention_;                      // on rank 0; it removes nothing while a save is being written
  std::optional<std::vector<bool>> writes_;  // which parts this rank writes
  std::string writes_key_;                   // of the parts that this was decided for
  bool settled_ = false;                     // asked again after the first update
  int64_t saves_ = 0;                        // begun so far
  HostCopies copies_;
  std::unique_ptr<Save> save_;                    // from its beginning until its outcome was acted on
  std::thread thread_;                            // of the save
  std::atomic<Beside> beside_ = Beside::nothing;  // of save_
  std::mutex mutex_;                              // with `written_`, for who waits until beside_ is busy no more
  std::condition_variable written_;
  std::string last_tag_;
  int64_t last_step_ = 0;
};

// "step-00000040"
DRIVETRAIN_INTERNAL std::string tag_of_step(int64_t step);
// The step of such a tag; nothing for any other name.
DRIVETRAIN_INTERNAL std::optional<int64_t> step_of_tag(const std::string& tag);

}  // namespace drivetrain
