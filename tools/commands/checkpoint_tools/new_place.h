// A folder in which a tool saves one checkpoint, as one that ends with a rename or leaves nothing. Main thread.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>

#include "checkpoint_tools/stored_run.h"
#include "internal.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL NewPlace {
 public:
  // `folder` is not there yet, or is empty: Error(config) if not. The store has default options, so that everything
  // lies in the folder. `config`: resolved.json of the run that the weights are from, or null.
  NewPlace(const Registry& registry, const std::string& store_name, const std::string& folder, const Value& config);
  // Without a commit: removes what was written, and the folder if it was not there before.
  ~NewPlace();
  NewPlace(const NewPlace&) = delete;
  NewPlace& operator=(const NewPlace&) = delete;

  // The config with this folder and this store; null if there was none.
  const Value& config() const { return config_; }
  // In the order of the ranks that the snapshots name: parts of one save, one after the other.
  void write(Snapshot snapshot);
  // The checkpoint is complete on return, and resolved.json is beside it, by which the folder is known as a run's.
  void commit(const Value& facts);

 private:
  void remove_empty_folders() noexcept;

  const std::string folder_;  // absolute
  std::string above_;         // the nearest folder above it that was there before
  StoreObject store_;
  Value config_;
  std::string tag_;
  int64_t step_ = 0;
  std::vector<Value> parts_;
  bool committed_ = false;
};

}  // namespace drivetrain
