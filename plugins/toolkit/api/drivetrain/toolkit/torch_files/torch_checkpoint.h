// A Checkpoint (checkpoint_store.h) whose tensors are put together from tensors of torch.save files: shards, flat
// partitions, or single ones. Built by one thread, read by any.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>
#include <drivetrain/toolkit/torch_files/torch_file.h>

namespace drivetrain {

class TorchCheckpoint final : public Checkpoint {
 public:
  using File = std::shared_ptr<const TorchFile>;

  // `folder`: for messages.
  explicit TorchCheckpoint(std::string folder) : folder_(std::move(folder)) {}

  Value& set_facts() { return facts_; }
  // A tensor without values yet. Error(checkpoint) for a name that is there or a shape that cannot be.
  void add(const std::string& name, const std::vector<int64_t>& shape, at::ScalarType dtype);
  bool contains(const std::string& name) const { return tensors_.count(name) > 0; }
  // Elements [first, first + box.rows * box.columns) of `source`, in row-major order, are the box.
  void add_box(const std::string& name, const StateBox& box, const File& file, const TorchTensor& source,
               int64_t first = 0);
  // Elements [first, first + count) of `source` are elements [begin, begin + count) of the tensor, in row-major order.
  void add_range(const std::string& name, int64_t begin, int64_t count, const File& file, const TorchTensor& source,
                 int64_t first = 0);
  // A tensor that is `source` as it stands.
  void add_whole(const std::string& name, const File& file, const TorchTensor& source);
  // Another name of a tensor that is there.
  void add_alias(const std::string& name, const std::string& of);
  // Checks that the parts of every tensor are the whole of it and do not overlap. Error(checkpoint) naming the tensor.
  void finish() const;

  const Value& facts() const override { return facts_; }
  std::vector<StoredTensor> tensors() const override;
  void read(const std::string& name, const StateBox& box, const at::Tensor& into) const override;
  // The CRC-32 of every record of every file.
  std::vector<std::string> verify() const override;

 private:
  struct Piece {
    StateBox box;
    File file;
    TorchTensor source;
    int64_t first = 0;
  };
  struct Tensor {
    std::vector<int64_t> shape;
    at::ScalarType dtype = at::kFloat;
    std::vector<Piece> pieces;
  };
  void copy(const Piece& piece, const StateBox& part, const at::Tensor& into) const;

  const std::string folder_;
  Value facts_ = Value::object();
  std::map<std::string, Tensor> tensors_;
};

// The matrix as which a shape is seen (StateBox): all of it.
StateBox whole_of(const std::vector<int64_t>& shape);

}  // namespace drivetrain
