// How a run begins: anew in a folder of its own, or from a checkpoint of the run that is there. Rank 0 chooses and
// holds the folder, the other ranks follow. Main thread, but for check_folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "run/run.h"
#include "train/run_flight.h"
#include "train/run_folder.h"
#include "train/train_run.h"

namespace drivetrain {

class Beginning {
 public:
  explicit Beginning(const TrainRequest& request) : request_(request), env_(request.setup.environment) {}

  // On rank 0: locks a folder that holds a run, or refuses it. Before `choose`, in which the store removes what may be
  // the save of a run that is at work.
  void hold_folder();
  // A new run, or the checkpoint to go on from. Error(config), Error(checkpoint) as `choose_tag` and where there is
  // nothing to go on from. The other ranks know rank 0's choice after `hear`.
  void choose(Run& run);
  void hear();
  // Rank 0 takes the folder for this run and writes its config there, `facts` for its `_resolved`; the others follow.
  // From here on the log and the flight record are kept there.
  void take_folder(const Run& run, const Value& facts, RunFlight& flight);
  // From here on check_folder knows the folder on ranks other than 0, too.
  void watch_folder(const Run& run);
  // Error(io) if another folder has its name by now: another run may be at work there. Any thread.
  void check_folder() const;
  // On rank 0: what a run writes at its end goes where its folder is by then.
  void follow_folder(Run& run) const;

  const std::string& tag() const { return on_.tag; }     // that the run goes on from; empty: it begins
  const GoOn& on() const { return on_; }                 // on rank 0, of a run that goes on
  bool begins_again() const { return begins_again_; }    // in the folder that TrainRequest::begun_folder names
  const std::string& run_id() const { return run_id_; }  // on rank 0, see kRunId

 private:
  void open_place(Run& run) const;
  void choose_on_rank_0(Run& run);
  void write_config(const Run& run, const Value& facts);
  std::vector<StoredTag> own_tags(const CheckpointStore& store, Log& log) const;
  double timeout_s() const { return static_cast<double>(request_.settings.rendezvous_timeout_s); }

  const TrainRequest& request_;
  const RankEnvironment& env_;
  std::unique_ptr<FolderLock> lock_;   // on rank 0; null: the folder is not taken yet
  std::optional<HeldFolder> watched_;  // on other ranks
  GoOn on_;
  bool begins_again_ = false;
  std::string run_id_;
};

}  // namespace drivetrain
