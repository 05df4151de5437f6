// Any folder that holds weights or a checkpoint, of whatever program, opened for reading: Hugging Face folders, our own
// checkpoints, and what the installed formats recognise. Main thread.
#pragma once

#include <map>
#include <memory>
#include <string>

#include <drivetrain/checkpoint_format.h>
#include <drivetrain/checkpoint_store.h>

#include "internal.h"
#include "plugin/registry.h"
#include "state/weight_source.h"

namespace drivetrain {

inline constexpr const char* kNativeNaming = "native";

struct OpenedFolder {
  std::shared_ptr<const Checkpoint> state;
  std::string naming;       // argument of Model::weight_rules; kNativeNaming: our own names
  std::string description;  // "DeepSpeed, ZeRO stage 2, 4 ranks"; for the log
};

class DRIVETRAIN_INTERNAL FolderReaders {
 public:
  // Opens no plugin yet. Both outlive this.
  FolderReaders(const Registry& registry, const Services& services) : registry_(registry), services_(services) {}

  // `tag`: which checkpoint of the folder; empty: the newest of ours, or what the format takes. Error(config) that
  // names the known formats if nobody knows the folder, or if two do; Error(plugin) if a format cannot be loaded.
  OpenedFolder open(const std::string& folder, const std::string& tag = "") const;
  const Registry& registry() const { return registry_; }
  const Services& services() const { return services_; }
  std::shared_ptr<CheckpointFormat> format(const std::string& name) const;
  std::shared_ptr<CheckpointStore> store(const std::string& output_dir) const;  // the run's, for reading

 private:
  struct DefaultStore {
    std::string id;  // "checkpoint_store/NAME"
    std::shared_ptr<CheckpointStore> store;
  };
  DefaultStore store_of_run(const std::string& output_dir) const;
  DefaultStore default_store() const;  // of which no place is open yet; null: none is installed
  OpenedFolder open_native(const std::string& folder, const std::string& tag) const;

  const Registry& registry_;
  const Services& services_;
  mutable std::map<std::string, std::shared_ptr<CheckpointStore>> stores_;  // which warn of what they find once
};

// A checkpoint's "model/" tensors as weights.
DRIVETRAIN_INTERNAL std::shared_ptr<const WeightSource> weights_of(std::shared_ptr<const Checkpoint> checkpoint,
                                                                   const std::string& folder);

}  // namespace drivetrain
