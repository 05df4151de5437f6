// A tag that is open for reading.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>
#include <drivetrain/toolkit/files/file_calls.h>

#include "chunk_reader.h"
#include "manifest.h"

namespace drivetrain::sharded {

class ShardedCheckpoint final : public Checkpoint {
 public:
  // `folder`: of the tag. `check`: whether `read` checks digests. Error(checkpoint) if the manifest or an index is
  // missing, damaged, of another save or of a newer version.
  ShardedCheckpoint(FileCalls& calls, const std::string& folder, const std::string& tag, bool check);

  const Value& facts() const override { return manifest_.facts; }
  std::vector<StoredTensor> tensors() const override;
  void read(const std::string& name, const StateBox& box, const at::Tensor& into) const override;
  std::vector<std::string> verify() const override;

 private:
  struct Piece {
    size_t file = 0;
    StateBox box;
    uint64_t begin = 0;
  };
  struct Tensor {
    std::vector<int64_t> shape;
    at::ScalarType dtype = at::kFloat;
    std::vector<Piece> pieces;
  };
  void open_rank(size_t rank);
  void add(size_t file, const FileSlice& slice);
  const Tensor& checked(const std::string& name, const StateBox& box, const at::Tensor& into) const;
  void copy(const Tensor& tensor, const Piece& piece, const StateBox& part, const at::Tensor& into) const;
  void check_descriptions(std::vector<std::string>& problems) const;
  std::string tensors_in(size_t file, uint64_t begin, uint64_t end) const;

  FileCalls& calls_;
  const std::string folder_, tag_;
  Manifest manifest_;
  Digest manifest_digest_;
  ChunkReader files_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace drivetrain::sharded
