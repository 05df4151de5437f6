#include "step/norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>

#include <drivetrain/error.h>
#include <drivetrain/flat_unit.h>

#include "kernels/optimizer/square_sum.h"
#include "sdk/ops_kernel.h"

namespace drivetrain {
namespace {

static_assert(kernels::kSquareBlock == kNormBlock);

int64_t blocks_of(int64_t elements) { return (elements + kNormBlock - 1) / kNormBlock; }

void fill_blocks(const at::Tensor& grad, double* sums) {
  const at::ScalarType type = grad.scalar_type();
  const bool readable = type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
  const at::Tensor flat = readable ? grad : grad.to(at::kFloat);
  kernels::SquareSum op;
  op.x = flat.const_data_ptr(), op.sums = sums, op.n = flat.numel(), op.dtype = ops::kernel_dtype(flat);
  ops::run(flat, op, blocks_of(op.n), 64, kernels::square_sum_cpu, DRIVETRAIN_CUDA_KERNEL(square_sum_cuda), "square sum");
}

void sum_on_device([[maybe_unused]] const at::Tensor& sums, [[maybe_unused]] const at::Tensor& out) {
#ifdef DRIVETRAIN_WITH_CUDA
  check_launch(kernels::sum_in_order_cuda(sums.const_data_ptr<double>(), sums.numel(), out.mutable_data_ptr<double>(),
                                          current_stream(out.device())), "sum of block sums");
#endif
}

// out := or += the sums, in order of index on the CPU, by a fixed tree on a device.
void add_sums(const at::Tensor& sums, const at::Tensor& out, bool first) {
  if (out.is_cpu()) {
    double* total = out.mutable_data_ptr<double>();
    *total = (first ? 0 : *total) + kernels::sum_in_order_cpu(sums.const_data_ptr<double>(), sums.numel());
    return;
  }
  const at::Tensor part = first ? out : at::empty({}, out.options());
  sum_on_device(sums, part);
  if (!first) out.add_(part);
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

GradNorm::GradNorm(const std::vector<Trainables>& chunks, const std::vector<ParamPtr>& order, const Mesh& mesh,
                   const at::Device& device) {
  std::map<const Param*, const Trainable*> named;
  for (const Trainables& chunk : chunks)
    for (const Trainable& t : chunk) named.emplace(t.param.get(), &t);
  std::map<const Param*, const Place*> found;
  places_.reserve(order.size());
  for (const ParamPtr& param : order) {
    if (!named.count(param.get())) continue;
    place(*named.at(param.get()), mesh);
    found[param.get()] = &places_.back();
  }
  for (const Trainables& chunk : chunks) {
    for (const Trainable& t : chunk) {
      if (t.layout.begin % kNormBlock != 0)
        throw fail(ErrorCode::internal, t.param->name, ": the flat range begins at ", t.layout.begin, ", not on a block of ", kNormBlock);
      const Place& place = *found.at(t.param.get());
      pieces_.push_back({place.table, place.own + t.layout.begin / kNormBlock, blocks_of(t.grad.numel())});
    }
  }
  for (Table& table : tables_) table.sums = at::zeros({table.blocks}, at::TensorOptions(at::kDouble).device(device));
}

void GradNorm::place(const Trainable& t, const Mesh& mesh) {
  std::vector<std::string> axes;
  const auto [index, count] = dim_piece(t.layout, mesh, axes);
  for (const std::string& axis : t.layout.flat_axes)
    if (mesh.size(axis) > 1) axes.push_back(axis);
  auto table = std::find_if(tables_.begin(), tables_.end(), [&](const Table& x) { return x.axes == axes; });
  if (table == tables_.end()) {
    tables_.push_back({axes, {}, 0, axes.empty() ? nullptr : mesh.group(axes)});
    table = tables_.end() - 1;
  }
  const int64_t local = blocks_of(t.layout.local_numel(mesh)), first = table->blocks;
  table->blocks += count * local;
  places_.push_back({t.param, table - tables_.begin(), first, count * local, first + index * local});
}

void GradNorm::sum_of_squares(const std::vector<Trainables>& chunks, const at::Tensor& out) {
  size_t i = 0;
  for (Table& table : tables_)
    if (table.group) table.sums.zero_();
  for (const Trainables& chunk : chunks)
    for (const Trainable& t : chunk) {
      const Piece& piece = pieces_.at(i++);
      if (piece.blocks > 0) fill_blocks(t.device_grad.defined() ? t.device_grad : t.grad, tables_[piece.table].sums.mutable_data_ptr<double>() + piece.first);
    }
  if (tables_.empty()) out.zero_();
  for (Table& table : tables_) {
    if (table.group) table.group->all_reduce(table.sums)->wait();
    add_sums(table.sums, out, &table == &tables_.front());
  }
}

std::string GradNorm::first_not_finite() const {
  std::vector<at::Tensor> sums;
  for (const Table& table : tables_) sums.push_back(table.sums.to(at::kCPU));
  for (const Place& place : places_) {
    const double* begin = sums[place.table].const_data_ptr<double>() + place.first;
    if (!std::all_of(begin, begin + place.blocks, [](double s) { return std::isfinite(s); })) return place.param->name;
  }
  return {};
}

}  // namespace drivetrain
