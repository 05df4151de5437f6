#include "step/norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>

#include <drivetrain/data_parallel.h>
#include <drivetrain/error.h>
#include <drivetrain/schedule.h>

#include <drivetrain/toolkit/ops/kernel_call.h>
#include "kernels/optimizer/square_sum.h"

namespace drivetrain {
namespace {

static_assert(kernels::kSquareBlock == kNormBlock);

int64_t blocks_of(int64_t elements) { return (elements + kNormBlock - 1) / kNormBlock; }

bool readable(const at::Tensor& grad) {
  const at::ScalarType type = grad.scalar_type();
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

void fill_blocks(const at::Tensor& grad, double* sums) {
  const at::Tensor flat = readable(grad) ? grad : grad.to(at::kFloat);
  kernels::SquareSum op;
  op.x = flat.const_data_ptr(), op.sums = sums, op.n = flat.numel(), op.dtype = ops::kernel_dtype(flat);
  ops::run(flat, op, blocks_of(op.n), 64, kernels::square_sum_cpu, DRIVETRAIN_CUDA_KERNEL(square_sum_cuda),
           "square sum");
}

// Gradients of a device, of one type: their squares in one launch.
void fill_blocks([[maybe_unused]] const std::vector<kernels::SquareSegment>& segments,
                 [[maybe_unused]] const at::Tensor& any, [[maybe_unused]] DeviceList<kernels::SquareSegment>& list) {
#ifdef DRIVETRAIN_WITH_CUDA
  kernels::SquareMany op;
  op.segments = list.put(segments, any.device()), op.count = static_cast<int64_t>(segments.size());
  op.blocks = segments.back().first + blocks_of(segments.back().n), op.dtype = ops::kernel_dtype(any);
  check_launch(kernels::square_many_cuda(op, current_stream(any.device())), "square sums");
#endif
}

// out := the sum, in order of index on the CPU, by a fixed tree on a device.
void add_in_order(const at::Tensor& sums, const at::Tensor& out) {
  if (out.is_cpu()) {
    *out.mutable_data_ptr<double>() = kernels::sum_in_order_cpu(sums.const_data_ptr<double>(), sums.numel());
    return;
  }
#ifdef DRIVETRAIN_WITH_CUDA
  check_launch(kernels::sum_in_order_cuda(sums.const_data_ptr<double>(), sums.numel(), out.mutable_data_ptr<double>(),
                                          current_stream(out.device())),
               "sum over parameters");
#endif
}

at::Tensor int64s(const std::vector<int64_t>& values, const at::Device& device) {
  at::Tensor t = at::empty({static_cast<int64_t>(values.size())}, at::TensorOptions(at::kLong));
  std::copy(values.begin(), values.end(), t.mutable_data_ptr<int64_t>());
  return t.to(device);
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

using HeldParams = std::map<const Param*, const Trainable*>;

// What this rank holds of the parameters that it counts.
HeldParams counted_here(const std::vector<Trainables>& chunks, const std::set<std::string>& counted_elsewhere) {
  HeldParams held;
  for (const Trainables& chunk : chunks)
    for (const Trainable& t : chunk)
      if (!counted_elsewhere.count(t.param->name)) held.emplace(t.param.get(), &t);
  return held;
}

void check_range(const Trainable& t) {
  if (t.layout.begin % kNormBlock != 0)
    throw fail(ErrorCode::plugin, t.param->name, ": the flat range begins at ", t.layout.begin, ", not on a block of ",
               kNormBlock, "; the data-parallel plugin must cut parameters there (kNormBlock in data_parallel.h)");
}

}  // namespace

GradNorm::GradNorm(const std::vector<Trainables>& chunks, const std::vector<ParamPtr>& order, const Mesh& mesh,
                   const at::Device& device, const std::set<std::string>& counted_elsewhere) {
  if (mesh.size(Schedule::kAxis) > 1) stages_ = mesh.group(Schedule::kAxis);
  const HeldParams held = counted_here(chunks, counted_elsewhere);
  Places places;
  for (const ParamPtr& param : order) {
    names_.push_back(param->name);
    if (held.count(param.get())) places[param.get()] = place(*held.at(param.get()), mesh);
  }
  lay_out_tables(places, device);
  for (const Trainables& chunk : chunks)
    for (const Trainable& t : chunk) {
      check_range(t);
      pieces_.push_back(held.count(t.param.get()) ? piece_of(t, places) : Piece());
    }
  note_params(order, places, device);
}

// The tables one after another in one buffer; from here on places are those in the buffer.
void GradNorm::lay_out_tables(Places& places, const at::Device& device) {
  std::vector<int64_t> table_first;
  int64_t blocks = 0;
  for (const Table& table : tables_) table_first.push_back(blocks), blocks += table.blocks;
  blocks_ = at::zeros({blocks}, at::TensorOptions(at::kDouble).device(device));
  for (size_t i = 0; i < tables_.size(); ++i) tables_[i].sums = blocks_.narrow(0, table_first[i], tables_[i].blocks);
  for (auto& [param, place] : places) place.first += table_first[place.table], place.own += table_first[place.table];
}

GradNorm::Piece GradNorm::piece_of(const Trainable& t, const Places& places) {
  const auto found = places.find(t.param.get());
  if (found == places.end())
    throw fail(ErrorCode::internal, t.param->name, " is updated and not in the model's list of parameters");
  return {found->second.own + t.layout.begin / kNormBlock, blocks_of(t.grad.numel())};
}

void GradNorm::note_params(const std::vector<ParamPtr>& order, const Places& places, const at::Device& device) {
  std::vector<int64_t> first, count;
  for (const ParamPtr& param : order) {
    const auto found = places.find(param.get());
    first.push_back(found == places.end() ? 0 : found->second.first);
    count.push_back(found == places.end() ? 0 : found->second.blocks);
  }
  first_ = int64s(first, device), count_ = int64s(count, device);
  params_ = at::zeros({static_cast<int64_t>(order.size())}, blocks_.options());
}

GradNorm::Place GradNorm::place(const Trainable& t, const Mesh& mesh) {
  std::vector<std::string> axes;
  const auto [index, count] = dim_piece(t.layout, mesh, axes);
  for (const std::string& axis : t.layout.flat_axes)
    if (mesh.size(axis) > 1) axes.push_back(axis);
  auto table = std::find_if(tables_.begin(), tables_.end(), [&](const Table& x) { return x.axes == axes; });
  if (table == tables_.end()) {
    tables_.push_back({axes, axes.empty() ? nullptr : mesh.group(axes), 0, {}});
    table = tables_.end() - 1;
  }
  const int64_t local = blocks_of(t.layout.local_numel(mesh)), first = table->blocks;
  table->blocks += count * local;
  return {static_cast<size_t>(table - tables_.begin()), first, count * local, first + index * local};
}

void GradNorm::fill_blocks_of(const std::vector<Trainables>& chunks) {
  std::map<at::ScalarType, std::pair<at::Tensor, std::vector<kernels::SquareSegment>>> together;
  size_t i = 0;
  for (const Trainables& chunk : chunks)
    for (const Trainable& t : chunk) {
      const Piece& piece = pieces_.at(i++);
      const at::Tensor& grad = t.device_grad.defined() ? t.device_grad : t.grad;
      if (piece.blocks == 0) continue;
      double* const sums = blocks_.mutable_data_ptr<double>() + piece.first;
      if (!grad.is_cuda() || !readable(grad)) {
        fill_blocks(grad, sums);
        continue;
      }
      auto& [any, segments] = together[grad.scalar_type()];
      any = grad;
      const int64_t first = segments.empty() ? 0 : segments.back().first + blocks_of(segments.back().n);
      segments.push_back({grad.const_data_ptr(), sums, grad.numel(), first});
    }
  for (const auto& [type, launch] : together) fill_blocks(launch.second, launch.first, lists_[type]);
}

void GradNorm::sum_of_squares(const std::vector<Trainables>& chunks, const at::Tensor& out) {
  for (Table& table : tables_)
    if (table.group) table.sums.zero_();
  fill_blocks_of(chunks);
  for (Table& table : tables_)
    if (table.group) table.group->all_reduce(table.sums)->wait();

  kernels::SegmentSum op;
  op.x = blocks_.const_data_ptr<double>(), op.sums = params_.mutable_data_ptr<double>();
  op.first = first_.const_data_ptr<int64_t>(), op.count = count_.const_data_ptr<int64_t>(),
  op.segments = params_.numel();
  ops::run(params_, op, op.segments, 16, kernels::segment_sum_cpu, DRIVETRAIN_CUDA_KERNEL(segment_sum_cuda),
           "sum of block sums");
  if (stages_) stages_->all_reduce(params_)->wait();  // with exact zeros
  add_in_order(params_, out);
}

std::string GradNorm::first_not_finite() const {
  const at::Tensor sums = params_.to(at::kCPU);
  const double* begin = sums.const_data_ptr<double>();
  const double* found = std::find_if_not(begin, begin + sums.numel(), [](double s) { return std::isfinite(s); });
  return found == begin + sums.numel() ? "" : names_[static_cast<size_t>(found - begin)];
}

}  // namespace drivetrain
