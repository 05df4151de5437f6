#include <drivetrain/layout.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include <drivetrain/error.h>
#include <drivetrain/mesh.h>

namespace drivetrain {
namespace {

// How many pieces a dimension is cut into and which of them is this rank's, the first axis counting slowest.
struct Cut {
  int64_t pieces = 1, index = 0;
};

Cut cut_of(const DimSplit& split, const Mesh& mesh) {
  Cut cut;
  for (const std::string& axis : split.axes) {
    cut.index = cut.index * mesh.size(axis) + mesh.index(axis);
    cut.pieces *= mesh.size(axis);
  }
  return cut;
}

// Rows of each piece of a dimension that is cut as if it had split.padded_to.
int64_t padded_piece(size_t dim, int64_t size, const DimSplit& split, const Cut& cut) {
  if (split.padded_to < size)
    throw fail(ErrorCode::internal, "dimension ", dim, " of ", size, " rows cannot be padded to ", split.padded_to,
               ", which is less");
  if (split.blocks.size() > 1)
    throw fail(ErrorCode::internal, "dimension ", dim, " has ", split.blocks.size(),
               " fused blocks and is padded; only a dimension of one block can be");
  return (split.padded_to + cut.pieces - 1) / cut.pieces;
}

int64_t product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

Layout Layout::whole(std::vector<int64_t> shape) {
  Layout layout;
  layout.global_shape = std::move(shape);
  return layout;
}

int64_t Layout::global_numel() const { return product(global_shape); }

std::vector<Layout::Range> Layout::ranges(size_t dim, const Mesh& mesh) const {
  const int64_t size = global_shape.at(dim);
  if (dim >= dims.size()) return {{0, size}};
  const Cut cut = cut_of(dims[dim], mesh);
  if (dims[dim].padded_to != 0) {
    const int64_t piece = padded_piece(dim, size, dims[dim], cut), first = std::min(size, cut.index * piece);
    return {{first, std::min(size - first, piece)}};
  }
  const std::vector<int64_t> blocks = dims[dim].blocks.empty() ? std::vector<int64_t>{size} : dims[dim].blocks;
  std::vector<Range> list;
  int64_t first = 0;
  for (const int64_t block : blocks) {
    if (block % cut.pieces != 0) {
      throw fail(ErrorCode::config, "dimension ", dim, " has a block of ", block, " rows, which ", cut.pieces,
                 " ranks cannot share evenly; choose sizes that divide");
    }
    const int64_t count = block / cut.pieces;
    list.push_back({first + cut.index * count, count});
    first += block;
  }
  if (first != size) {
    throw fail(ErrorCode::internal, "the fused blocks of dimension ", dim, " add up to ", first, ", the dimension is ",
               size);
  }
  return list;
}

std::vector<int64_t> Layout::local_shape(const Mesh& mesh) const {
  std::vector<int64_t> shape;
  for (size_t dim = 0; dim < global_shape.size(); ++dim) {
    const bool padded = dim < dims.size() && dims[dim].padded_to != 0;
    int64_t size = padded ? padded_piece(dim, global_shape[dim], dims[dim], cut_of(dims[dim], mesh)) : 0;
    if (!padded)
      for (const Range& range : ranges(dim, mesh)) size += range.count;
    shape.push_back(size);
  }
  return shape;
}

int64_t Layout::local_numel(const Mesh& mesh) const { return product(local_shape(mesh)); }

}  // namespace drivetrain
