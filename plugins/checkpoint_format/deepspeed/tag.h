// One tag of DeepSpeed that is being read: its files, and the checkpoint that is put together from them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/torch_files/torch_checkpoint.h>

#include "folder.h"

namespace drivetrain::deepspeed {

struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
  int64_t numel = 1;
};

struct Tag {
  using File = TorchCheckpoint::File;

  explicit Tag(const TagFiles& of, const std::vector<std::string>& said)
      : files(of), notes(said), made(std::make_shared<TorchCheckpoint>(of.folder)) {}

  template <class... Parts>
  Error bad(const Parts&... parts) const {
    return fail(ErrorCode::checkpoint, files.folder, ": ", parts...);
  }
  const PickleTree& model_tree() const { return models.front()->tree(); }
  const PickleNode& model_root() const { return models.front()->root(); }
  // optimizer_state_dict of a rank.
  const PickleNode& state_of(size_t rank) const;
  // Names and shapes of parameters, in their order.
  std::vector<NamedShape> shapes(const PickleNode& node) const;

  const TagFiles& files;
  std::vector<std::string> notes;
  const std::shared_ptr<TorchCheckpoint> made;
  std::vector<File> models, optimizers;
  int64_t stage = 0, updates = 0;
};

// A member that may be missing or None: null.
const PickleNode* member(const PickleTree& tree, const PickleNode& node, const char* key);

// Adds float32 values and moments, put together from the flat partitions of all ranks; sets `stage` and `updates`.
void add_partitions(Tag& tag);
// Adds what the files say beside their tensors. After the tensors.
void add_facts(Tag& tag);

}  // namespace drivetrain::deepspeed
