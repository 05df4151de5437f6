// Files of torch.save: a zip archive with a pickle and the bytes of every storage. Reads plain data and tensors; the
// tensors' bytes are read when they are asked for.
//
// Source: pytorch torch/serialization.py and torch/_utils.py. Thread: const calls from any thread. Errors:
// Error(checkpoint) naming file, byte and tensor; Error(io) if the disk cannot be read.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/toolkit/torch_files/pickle_tree.h>
#include <drivetrain/toolkit/torch_files/zip_archive.h>

namespace drivetrain {

// A tensor of such a file, not read yet. Its elements are checked to lie in the storage.
struct TorchTensor {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape, strides;
  int64_t offset = 0;               // of its first element in the storage, in elements
  const ZipRecord* data = nullptr;  // the storage; owned by the file

  int64_t numel() const;
  bool contiguous() const;
};

class TorchFile {
 public:
  // The file, or the part [begin, begin + bytes) of it. Error(config) if it is not there.
  static std::shared_ptr<const TorchFile> open(const std::string& path);
  TorchFile(std::shared_ptr<const StoredFile> file, uint64_t begin, uint64_t bytes);

  const std::string& path() const { return archive_.path(); }
  const PickleTree& tree() const { return *tree_; }
  const PickleNode& root() const { return tree_->root(); }

  static bool is_tensor(const PickleNode& node);
  TorchTensor tensor(const PickleNode& node, std::string_view what) const;
  // The value of a tensor with one element, or of a plain number.
  double number(const PickleNode& node, std::string_view what) const;

  // Elements [first, first + count) in row-major order, in new memory on the CPU, in one dimension. Memory: these, or
  // the part of the storage that the tensor lies in if it is not contiguous.
  at::Tensor read(const TorchTensor& tensor, int64_t first, int64_t count) const;
  at::Tensor read(const TorchTensor& tensor) const;  // whole, in its shape

  // One line per record whose CRC-32 is another.
  std::vector<std::string> verify() const;

 private:
  struct Storage {
    at::ScalarType dtype = at::kFloat;
    bool typed = true;  // false: the tensor says its dtype
    const ZipRecord* record = nullptr;
  };
  Storage storage(const PickleNode& node) const;
  TorchTensor rebuilt(const PickleNode& node, const std::string& function,
                      const std::vector<const PickleNode*>& arguments) const;
  void check_inside(const PickleNode& node, const TorchTensor& tensor) const;

  ZipArchive archive_;
  std::string prefix_;  // of the names of its records: "archive/"
  std::unique_ptr<const PickleTree> tree_;
};

}  // namespace drivetrain
