#include <drivetrain/toolkit/sharding/flat_unit.h>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include <drivetrain/device.h>
#include <drivetrain/error.h>
#include <drivetrain/mesh.h>

namespace drivetrain {
namespace {

int64_t rounded_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

FlatUnit::FlatUnit(std::vector<ParamPtr> params, const Mesh& mesh, const FlatOptions& options)
    : params_(std::move(params)) {
  if (options.temporary_grads && !options.part_grads)
    throw fail(ErrorCode::internal, "a flat unit with temporary_grads needs part_grads");
  lay_out(mesh, options);
  allocate(options);
  for (size_t i = 0; i < params_.size(); ++i) {
    Param& param = *params_[i];
    param.tensor =
        values_.narrow(0, offsets_[i], counts_[i]).view(shapes_[i]).detach().set_requires_grad(param.trainable);
    param.restart_grad();
  }
  if (grads_.defined()) point_slots();
  cut(options);
}

int64_t FlatUnit::numel_of(const std::vector<ParamPtr>& params, const Mesh& mesh, int64_t shards) {
  int64_t numel = 0;
  for (const ParamPtr& param : params) numel += rounded_up(param->layout.local_numel(mesh), kNormBlock);
  return rounded_up(numel, kNormBlock * shards);
}

void FlatUnit::lay_out(const Mesh& mesh, const FlatOptions& options) {
  for (const ParamPtr& param : params_) {
    offsets_.push_back(numel_);
    counts_.push_back(param->layout.local_numel(mesh));
    shapes_.push_back(param->layout.local_shape(mesh));
    numel_ += rounded_up(counts_.back(), kNormBlock);
    trainable_ = trainable_ || param->trainable;
  }
  numel_ = numel_of(params_, mesh, options.shards);
  part_numel_ = numel_ / options.shards;
  part_begin_ = options.shard * part_numel_;
}

void FlatUnit::allocate(const FlatOptions& options) {
  const auto from = [&](const FlatOptions::Allocate& source, int64_t numel, at::ScalarType dtype) {
    return source ? source(numel, dtype) : at::empty({numel}, at::TensorOptions().dtype(dtype).device(options.device));
  };
  const auto part_of = [&](const at::Tensor& whole) { return whole.narrow(0, part_begin_, part_numel_); };
  values_ = from(options.allocate_values, numel_, options.dtypes.param);
  const auto on_host = [&](int64_t numel, at::ScalarType dtype) { return host_memory(numel, dtype, options.pinned); };
  const FlatOptions::Allocate part_source = options.host_values ? on_host : options.allocate_part_values;
  part_values_ = options.part_values ? from(part_source, part_numel_, options.dtypes.param) : part_of(values_);
  zero_gaps(part_values_, part_begin_);  // those of the other parts are their owners'
  if (!trainable_) return;
  if (!options.temporary_grads) grads_ = from(options.allocate_grads, numel_, options.dtypes.grad);
  if (grads_.defined()) zero_gaps(grads_, 0);
  part_grads_ = options.part_grads ? from({}, part_numel_, options.dtypes.grad) : part_of(grads_);
  if (options.host_state) {
    part_masters_ = on_host(part_numel_, options.dtypes.master);
    host_grads_ = on_host(part_numel_, options.dtypes.grad);
  } else if (options.dtypes.master != options.dtypes.param || (options.part_values && options.host_values)) {
    // Where the part's values are the host's, what is updated stays with the gradients.
    part_masters_ = from({}, part_numel_, options.dtypes.master);
  }
}

// `flat` holds the elements from `begin` on.
void FlatUnit::zero_gaps(const at::Tensor& flat, int64_t begin) const {
  const int64_t end = begin + flat.numel();
  for (size_t i = 0; i < params_.size(); ++i) {
    const int64_t first = std::max(begin, offsets_[i] + counts_[i]);
    const int64_t last = std::min(end, i + 1 < params_.size() ? offsets_[i + 1] : numel_);
    if (first < last) flat.narrow(0, first - begin, last - first).zero_();
  }
}

void FlatUnit::cut(const FlatOptions& options) {
  const int64_t chunk = std::max(kNormBlock, options.chunk / kNormBlock * kNormBlock), end = part_begin_ + part_numel_;
  std::vector<bool> named(params_.size());
  for (int64_t from = part_begin_; from < end; from += std::min(chunk, end - from)) {
    const int64_t to = from + std::min(chunk, end - from);
    Trainables& list = pieces_.emplace_back();
    size_t last_named = 0;
    for (size_t i = 0; i < params_.size(); ++i) {
      if (trainable_ && !params_[i]->trainable) continue;
      last_named = i;
      const int64_t first = std::max(from, offsets_[i]), last = std::min(to, offsets_[i] + counts_[i]);
      // Who holds nothing of a parameter says so, in the first list.
      const bool nothing = offsets_[i] >= end || offsets_[i] + counts_[i] <= part_begin_ || counts_[i] == 0;
      if (first < last)
        list.push_back(piece(i, first, last, options));
      else if (nothing && !named[i])
        list.push_back(piece(i, offsets_[i], offsets_[i], options));
      named[i] = named[i] || nothing;
    }
    // Nothing but a gap: the list still stands for these parameters, behind the end of the last one.
    const int64_t behind = offsets_[last_named] + rounded_up(counts_[last_named], kNormBlock);
    if (list.empty()) list.push_back(piece(last_named, behind, behind, options));
  }
}

// Elements [begin, end) of the flat buffer, which lie in parameter i.
Trainable FlatUnit::piece(size_t i, int64_t begin, int64_t end, const FlatOptions& options) const {
  const int64_t at = end > begin ? begin - part_begin_ : 0, count = end - begin;
  Trainable t;
  t.param = params_[i];
  t.working = part_values_.narrow(0, at, count);
  t.value = part_masters_.defined() ? part_masters_.narrow(0, at, count) : t.working;
  if (part_grads_.defined()) t.grad = part_grads_.narrow(0, at, count);
  if (host_grads_.defined()) t.device_grad = std::exchange(t.grad, host_grads_.narrow(0, at, count));
  t.layout = params_[i]->layout;
  if (options.shards > 1) t.layout.flat_axes = options.shard_axes;
  if (options.shards > 1 || count < counts_[i]) t.layout.begin = begin - offsets_[i], t.layout.end = end - offsets_[i];
  return t;
}

void FlatUnit::point_slots() {
  for (size_t i = 0; i < params_.size(); ++i) {
    const at::Tensor slot = grads_.narrow(0, offsets_[i], counts_[i]);
    if (params_[i]->trainable)
      params_[i]->grad = slot.view(shapes_[i]);
    else
      slot.zero_();
  }
}

void FlatUnit::attach_grads(const at::Tensor& buffer) {
  grads_ = buffer;
  zero_gaps(grads_, 0);
  point_slots();
}

void FlatUnit::detach_grads() {
  for (const ParamPtr& param : params_) param->grad = at::Tensor();
  grads_ = at::Tensor();
}

void FlatUnit::copy_grads_to_host() {
  if (host_grads_.defined()) host_grads_.copy_(part_grads_, /*non_blocking=*/true);
}

void FlatUnit::zero_unwritten_grads() {
  for (const ParamPtr& param : params_)
    if (param->trainable) param->complete_grad();
}

// The memory below the storage is swapped, so views saved by a graph stay valid and no version counter moves.
void FlatUnit::release() {
  auto* storage = values_.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, storage->device()));
  storage->set_nbytes(0);
  released_ = true;
}

void FlatUnit::fill() {
  auto* storage = values_.storage().unsafeGetStorageImpl();
  const size_t bytes = static_cast<size_t>(numel_) * values_.element_size();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
  storage->set_nbytes(bytes);
  released_ = false;
}

}  // namespace drivetrain
