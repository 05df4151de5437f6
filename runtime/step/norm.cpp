#include "step/norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <cmath>

#include <drivetrain/error.h>
#include <drivetrain/flat_unit.h>

#include "kernels/optimizer/square_sum.h"

namespace drivetrain {
namespace {

static_assert(kernels::kSquareBlock == kNormBlock);

int64_t blocks_of(int64_t elements) { return (elements + kNormBlock - 1) / kNormBlock; }

void fill_blocks(const at::Tensor& grad, double* sums) {
  const bool readable = grad.scalar_type() == at::kFloat || grad.scalar_type() == at::kBFloat16;
  const at::Tensor flat = grad.is_cpu() && readable ? grad : grad.to(at::kCPU, at::kFloat);
  kernels::SquareSum op;
  op.x = flat.const_data_ptr(), op.sums = sums, op.n = flat.numel();
  op.dtype = flat.scalar_type() == at::kFloat ? kernels::Dtype::f32 : kernels::Dtype::bf16;
  at::parallel_for(0, blocks_of(op.n), 64, [&](int64_t begin, int64_t end) { kernels::square_sum_cpu(op, begin, end); });
}

// Which piece of the parameter this rank holds: index among the pieces that tensor parallelism makes, and their number.
std::pair<int64_t, int64_t> dim_piece(const Layout& layout, const Mesh& mesh, std::vector<std::string>& axes) {
  int64_t index = 0, count = 1;
  for (const DimSplit& dim : layout.dims) {
    for (const std::string& axis : dim.axes) {
      if (mesh.size(axis) == 1) continue;
      index = index * mesh.size(axis) + mesh.index(axis);
      count *= mesh.size(axis);
      axes.push_back(axis);
    }
  }
  return {index, count};
}

}  // namespace

GradNorm::GradNorm(const std::vector<Trainables>& chunks, const Mesh& mesh) {
  for (const Trainables& chunk : chunks) {
    for (const Trainable& t : chunk) {
      std::vector<std::string> axes;
      const auto [index, count] = dim_piece(t.layout, mesh, axes);
      const int64_t local_blocks = blocks_of(t.layout.local_numel(mesh));
      if (t.layout.begin % kNormBlock != 0)
        throw fail(ErrorCode::internal, t.param->name, ": the flat range begins at ", t.layout.begin, ", not on a block of ", kNormBlock);
      for (const std::string& axis : t.layout.flat_axes)
        if (mesh.size(axis) > 1) axes.push_back(axis);

      auto table = std::find_if(tables_.begin(), tables_.end(), [&](const Table& x) { return x.axes == axes; });
      if (table == tables_.end()) {
        tables_.push_back({axes, {}, axes.empty() ? nullptr : mesh.group(axes)});
        table = tables_.end() - 1;
      }
      const int64_t first = static_cast<int64_t>(table->sums.size()) + index * local_blocks + t.layout.begin / kNormBlock;
      pieces_.push_back({table - tables_.begin(), first, blocks_of(t.grad.numel())});
      table->sums.resize(table->sums.size() + count * local_blocks);
    }
  }
}

double GradNorm::sum_of_squares(const std::vector<Trainables>& chunks) {
  size_t i = 0;
  for (Table& table : tables_)
    if (table.group) std::fill(table.sums.begin(), table.sums.end(), 0.0);
  for (const Trainables& chunk : chunks)
    for (const Trainable& t : chunk) {
      const Piece& piece = pieces_.at(i++);
      fill_blocks(t.grad, tables_[piece.table].sums.data() + piece.first);
    }
  double total = 0;
  for (Table& table : tables_) {
    if (table.group)
      table.group->all_reduce(at::from_blob(table.sums.data(), {static_cast<int64_t>(table.sums.size())}, at::kDouble))->wait();
    for (double s : table.sums) total += s;
  }
  return total;
}

std::string GradNorm::first_not_finite(const std::vector<Trainables>& chunks) const {
  size_t i = 0;
  for (const Trainables& chunk : chunks)
    for (const Trainable& t : chunk) {
      const Piece& piece = pieces_.at(i++);
      const auto begin = tables_[piece.table].sums.begin() + piece.first;
      if (!std::all_of(begin, begin + piece.blocks, [](double s) { return std::isfinite(s); })) return t.param->name;
    }
  return {};
}

}  // namespace drivetrain
