// The manifest of a tag in a BlobStore. Private to the toolkit. Value semantics.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>

#include <drivetrain/toolkit/checkpoint/blob_store.h>

namespace drivetrain::blobs {

inline constexpr const char* kManifest = "manifest";

std::string digest_text(const void* data, uint64_t bytes);

// A slice as `write` returns it and the manifest lists it.
struct BlobSlice {
  std::string blob, digest;  // no blob where there are no bytes
  StateBox box;
  uint64_t bytes = 0;
};
struct BlobTensor {
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  std::vector<BlobSlice> slices;
};

Value slice_value(const StateSlice& slice, const std::string& blob);

struct Manifest {
  int64_t step = 0;
  double saved_at = 0;
  uint64_t bytes = 0, blobs = 0;  // of the slices
  Value facts;
  std::map<std::string, BlobTensor> tensors;

  std::set<std::string> names() const;  // of the blobs
  static std::string text(int64_t step, double saved_at, const Value& facts, const std::vector<Value>& parts);
  // Error(checkpoint) naming `where` if it is damaged.
  static Manifest read(const Blob& blob, const std::string& where);
};

}  // namespace drivetrain::blobs
