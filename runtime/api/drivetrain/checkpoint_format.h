// Checkpoint folders of other programs: how such a folder is recognised, opened and written. The runtime asks every
// installed format; no configuration chooses one.
//
// Names. A format gives tensors their names in the file, below an owner: "model/" and the name of a weight, and, where
// there is an optimizer's state, "optimizer/", the name of the weight, a dot and the name of the moment, which has
// the weight's shape: "optimizer/transformer.wte.weight.exp_avg". Values are in the layout of the other program. The
// model says how its own parameters are made of them (Model::weight_rules).
//
// Facts. Checkpoint::facts has "format" (a text for people), "naming" (the argument of Model::weight_rules), "step"
// (finished steps) where it is known, and, where there is an optimizer's state, "updates" (steps that were not
// skipped); "model", an object: what the checkpoint says of its model beside the tensors, under the names that the
// naming has for it (WeightRules::config); "loss_scaler" (scale, tolerance, steps, last_overflow) where there was one;
// "notes", a list of texts that a user should see. Everything else is for people.
//
// Thread: main, unless Checkpoint says otherwise. Errors: Error(config) for a folder that is none of the format,
// Error(checkpoint) for one that is damaged, incomplete or holds what the format cannot read, naming the file;
// Error(io) for the disk.
#pragma once

#include <memory>
#include <string>

#include <drivetrain/checkpoint_store.h>
#include <drivetrain/plugin.h>

DRIVETRAIN_CONTRACT(checkpoint_format)

namespace drivetrain {

class DRIVETRAIN_API CheckpointFormat : public Plugin {
 public:
  static constexpr const char* kKind = "checkpoint_format";
  ~CheckpointFormat() override;

  // One phrase if the folder looks like one of this format ("DeepSpeed, ZeRO stage 2, 4 ranks"), by the names of its
  // files and a few bytes of them; empty if it does not. Throws nothing but Error(io).
  virtual std::string recognizes(const std::string& folder) const = 0;
  // Called only for a folder that is recognized, on any number of ranks at once. `tag`: which of several checkpoints in
  // the folder; empty: the one that the folder itself names, or the only one. Error(config) listing the tags if that is
  // not clear. What it returns stays valid without this object.
  virtual std::shared_ptr<const Checkpoint> open(const std::string& folder, const std::string& tag) const = 0;

  // Whether `write` may be called.
  virtual bool writes() const { return false; }
  // Writes `state`, which has names and facts as described above, into an empty folder; nobody reads the folder before
  // the call has returned. Beside those facts it has, where there is an optimizer's state and they are known,
  // "optimizer_type", "optimizer_options" and "lr", the rate of the next step; and "tied", an object: further names of
  // weights that the other program has, and the name of the weight that each is. Keeps at most one tensor in memory.
  virtual void write(const std::string& folder, const Checkpoint& state) const;
};

}  // namespace drivetrain
