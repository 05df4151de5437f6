// How a run begins: anew in a folder of its own, or from a checkpoint of the run that is there. On rank 0, main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "run/run.h"
#include "train/run_folder.h"
#include "train/train_run.h"

namespace drivetrain {

class Beginning {
 public:
  explicit Beginning(const TrainRequest& request) : request_(request) {}

  // Locks a folder that holds a run, or refuses it. Before the store's open_place, which removes what may be the save
  // of a run that is at work.
  void hold_folder();
  // A new run, or the checkpoint to go on from. Error(config), Error(checkpoint) as `choose_tag` and where there is
  // nothing to go on from.
  void choose(Run& run);
  // Takes the folder for this run, which writes its config there. `facts`: for its `_resolved`.
  void take_folder(const Run& run, const Value& facts);

  const std::string& tag() const { return on_.tag; }      // that the run goes on from; empty: it begins
  const GoOn& on() const { return on_; }                  // of a run that goes on
  bool begins_again() const { return begins_again_; }     // in the folder that TrainRequest::begun_folder names
  const std::string& run_id() const { return run_id_; }   // see kRunId
  const FolderLock* lock() const { return lock_.get(); }  // null: the folder is not taken yet

 private:
  std::vector<StoredTag> own_tags(const CheckpointStore& store, Log& log) const;

  const TrainRequest& request_;
  std::unique_ptr<FolderLock> lock_;
  GoOn on_;
  bool begins_again_ = false;
  std::string run_id_;
};

}  // namespace drivetrain
