#include <drivetrain/flat_unit.h>

#include <ATen/ops/empty.h>

#include <drivetrain/mesh.h>

namespace drivetrain {
namespace {

int64_t rounded_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

void zero_gap(const at::Tensor& flat, int64_t begin, int64_t end) {
  if (end > begin) flat.narrow(0, begin, end - begin).zero_();
}

}  // namespace

FlatUnit::FlatUnit(std::vector<ParamPtr> params, const Mesh& mesh, const FlatOptions& options) : params_(std::move(params)) {
  std::vector<int64_t> counts;
  for (const ParamPtr& param : params_) {
    offsets_.push_back(numel_);
    counts.push_back(param->layout.local_numel(mesh));
    numel_ += rounded_up(counts.back(), kNormBlock);
  }
  numel_ = rounded_up(numel_, kNormBlock * options.shards);
  const auto allocate = [&](const auto& source, at::ScalarType dtype) {
    return source ? source(numel_, dtype) : at::empty({numel_}, at::TensorOptions().dtype(dtype).device(options.device));
  };
  const std::function<at::Tensor(int64_t, at::ScalarType)> none;
  values_ = allocate(options.allocate_values, options.dtypes.param);
  grads_ = allocate(options.allocate_grads, options.dtypes.grad);

  if (options.dtypes.master != options.dtypes.param) masters_ = allocate(none, options.dtypes.master);

  for (size_t i = 0; i < params_.size(); ++i) {
    Param& param = *params_[i];
    const int64_t end = i + 1 < params_.size() ? offsets_[i + 1] : numel_;
    zero_gap(values_, offsets_[i] + counts[i], end);
    zero_gap(grads_, offsets_[i] + counts[i], end);
    const std::vector<int64_t> shape = param.layout.local_shape(mesh);
    param.tensor = values_.narrow(0, offsets_[i], counts[i]).view(shape).detach().set_requires_grad(param.trainable);
    param.grad_fresh = true;
    if (param.trainable) {
      param.grad = grads_.narrow(0, offsets_[i], counts[i]).view(shape);
      add_trainable(i, counts[i]);
    } else {
      grads_.narrow(0, offsets_[i], counts[i]).zero_();
    }
  }
}

void FlatUnit::add_trainable(size_t i, int64_t count) {
  Trainable t;
  t.param = params_[i];
  t.working = values_.narrow(0, offsets_[i], count);
  t.value = masters_.defined() ? masters_.narrow(0, offsets_[i], count) : t.working;
  t.grad = grads_.narrow(0, offsets_[i], count);
  t.layout = params_[i]->layout;
  trainables_.push_back(std::move(t));
}

void FlatUnit::settle_grads() {
  for (const ParamPtr& param : params_) {
    if (!param->trainable || !param->grad_fresh) continue;
    param->grad.zero_();
    param->grad_fresh = false;
  }
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
