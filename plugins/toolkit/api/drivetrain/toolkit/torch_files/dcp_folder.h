// Folders of torch.distributed.checkpoint: a pickle (.metadata) that says where each part of each tensor is, and files
// of many torch.save archives. Source: pytorch torch/distributed/checkpoint/{filesystem,metadata}.py.
//
// Thread: one at a time. Errors: Error(checkpoint) naming file, byte and tensor; Error(io) if the disk cannot be read.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>
#include <drivetrain/toolkit/torch_files/torch_file.h>

namespace drivetrain {

class DcpFolder {
 public:
  using Sizes = std::vector<int64_t>;
  // What is stored at one place: a part of a tensor, or an object.
  struct Item {
    std::string name;
    std::shared_ptr<const TorchFile> file;
    bool tensor = false;   // an object is the root of `file`
    TorchTensor values{};  // of a tensor: the part, which begins at `offsets` and lies inside
    Sizes offsets{};
  };

  static constexpr const char* kMetadata = ".metadata";

  explicit DcpFolder(const std::string& folder);

  // Of all tensors, by full name.
  const std::map<std::string, Sizes>& shapes() const { return shapes_; }
  // The keys of the state dict under which a name stood; the name alone where the folder does not tell.
  std::vector<std::string> path(const std::string& name) const;
  // Opens what is stored under the names that are wanted, in the order of the metadata.
  void each_item(const std::function<bool(const std::string& name)>& wanted,
                 const std::function<void(const Item&)>& use) const;

 private:
  void read_paths();
  void read_shapes();
  Item open_item(const PickleNode& index, const PickleNode& info, const std::string& name) const;
  void read_part(const PickleNode& index, Item& item) const;
  std::shared_ptr<const StoredFile> open_file(const std::string& name) const;

  const std::string folder_;
  std::unique_ptr<const PickleTree> tree_;
  std::map<std::string, std::vector<std::string>> paths_;
  std::map<std::string, Sizes> shapes_;
  mutable std::map<std::string, std::shared_ptr<const StoredFile>> files_;
};

// The part of a tensor that begins at `offsets` and has `sizes`, as boxes of the matrix that the tensor is seen as,
// each with its first element in the part and with rows that follow each other there.
struct ChunkBox {
  StateBox box;
  int64_t first = 0;
};
std::vector<ChunkBox> boxes_of_chunk(const std::vector<int64_t>& shape, const std::vector<int64_t>& offsets,
                                     const std::vector<int64_t>& sizes);

}  // namespace drivetrain
