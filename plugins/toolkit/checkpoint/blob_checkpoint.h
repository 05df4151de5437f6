// A tag of a BlobStore that is open for reading. Private to the toolkit.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "blob_manifest.h"

namespace drivetrain::blobs {

class BlobCheckpoint final : public Checkpoint {
 public:
  // Opens every blob. Error(checkpoint) if one is missing or has another size.
  BlobCheckpoint(const BlobPlace& place, Manifest manifest, std::string where);

  const Value& facts() const override { return manifest_.facts; }
  std::vector<StoredTensor> tensors() const override;
  void read(const std::string& name, const StateBox& box, const at::Tensor& into) const override;
  std::vector<std::string> verify() const override;

 private:
  at::Tensor read_slice(const BlobTensor& tensor, const BlobSlice& slice, const std::string& name) const;

  const Manifest manifest_;
  const std::string where_;
  std::map<std::string, std::shared_ptr<const Blob>> blobs_;
};

}  // namespace drivetrain::blobs
