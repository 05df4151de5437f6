#include "blob_checkpoint.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/torch_files/torch_checkpoint.h>

namespace drivetrain::blobs {

BlobCheckpoint::BlobCheckpoint(const BlobPlace& place, Manifest manifest, std::string where)
    : manifest_(std::move(manifest)), where_(std::move(where)) {
  for (const auto& [name, tensor] : manifest_.tensors)
    for (const BlobSlice& slice : tensor.slices) {
      if (slice.bytes == 0) continue;
      const std::shared_ptr<const Blob> blob = place.open(slice.blob);
      if (!blob || blob->bytes() != slice.bytes)
        throw fail(ErrorCode::checkpoint, where_, ": ", slice.blob, " with a part of ", name, " ",
                   blob ? concat("has ", blob->bytes(), " bytes, and ", slice.bytes, " were written") : "is missing",
                   "\n   copy this checkpoint again from a place where it is whole, or use another one");
      blobs_[slice.blob] = blob;
    }
}

std::vector<StoredTensor> BlobCheckpoint::tensors() const {
  std::vector<StoredTensor> list;
  for (const auto& [name, tensor] : manifest_.tensors) list.push_back({name, tensor.shape, tensor.dtype});
  return list;
}

// [box.rows, box.columns] of the stored dtype, checked.
at::Tensor BlobCheckpoint::read_slice(const BlobTensor& tensor, const BlobSlice& slice, const std::string& name) const {
  at::Tensor values = at::empty({slice.box.rows, slice.box.columns}, at::TensorOptions(tensor.dtype));
  const auto refuse = [&](const char* what) {
    return fail(ErrorCode::checkpoint, where_, ": ", slice.blob, ", bytes 0 to ", slice.bytes, ", a part of ", name,
                ": ", what);
  };
  if (static_cast<uint64_t>(values.nbytes()) != slice.bytes) throw refuse("has another size than its box");
  if (slice.bytes > 0) blobs_.at(slice.blob)->read(values.mutable_data_ptr());
  if (digest_text(values.const_data_ptr(), slice.bytes) != slice.digest)
    throw refuse("is damaged: its digest is another");
  return values;
}

void BlobCheckpoint::read(const std::string& name, const StateBox& box, const at::Tensor& into) const {
  const auto found = manifest_.tensors.find(name);
  if (found == manifest_.tensors.end()) throw fail(ErrorCode::checkpoint, where_, ": there is no tensor ", name);
  const StateBox whole = whole_of(found->second.shape);
  if (box.row < 0 || box.column < 0 || box.row + box.rows > whole.rows || box.column + box.columns > whole.columns)
    throw fail(ErrorCode::checkpoint, where_, ": rows ", box.row, " to ", box.row + box.rows, ", columns ", box.column,
               " to ", box.column + box.columns, " are not in ", name, ", which has ", whole.rows, " x ",
               whole.columns);
  int64_t elements = 0;
  for (const BlobSlice& slice : found->second.slices) {
    const StateBox& s = slice.box;
    const int64_t row = std::max(box.row, s.row), rows = std::min(box.row + box.rows, s.row + s.rows) - row;
    const int64_t column = std::max(box.column, s.column),
                  columns = std::min(box.column + box.columns, s.column + s.columns) - column;
    if (rows <= 0 || columns <= 0) continue;
    const at::Tensor part = read_slice(found->second, slice, name).narrow(0, row - s.row, rows);
    into.narrow(0, row - box.row, rows)
        .narrow(1, column - box.column, columns)
        .copy_(part.narrow(1, column - s.column, columns));
    elements += rows * columns;
  }
  if (elements != box.rows * box.columns)
    throw fail(ErrorCode::checkpoint, where_, ": a part of ", name, " is in no blob");
}

std::vector<std::string> BlobCheckpoint::verify() const {
  std::vector<std::string> problems;
  for (const auto& [name, tensor] : manifest_.tensors)
    for (const BlobSlice& slice : tensor.slices) try {
        read_slice(tensor, slice, name);
      } catch (const Error& e) {
        problems.emplace_back(e.what());
      }
  return problems;
}

}  // namespace drivetrain::blobs
