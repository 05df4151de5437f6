#include "late_input.h"

#include <ATen/ops/empty.h>

#include <memory>

#include <drivetrain/error.h>

namespace drivetrain::megatron {

// The storage says its size, so that views may be taken, and has no memory.
LateInput::LateInput(at::IntArrayRef sizes, const at::TensorOptions& options) : tensor_(at::empty({0}, options)) {
  tensor_.storage().unsafeGetStorageImpl()->set_nbytes(static_cast<size_t>(c10::multiply_integers(sizes)) *
                                                       tensor_.element_size());
  tensor_.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
}

// The memory below the storage is swapped, as toolkit/sharding does: no copy, and `whole` lives as long as the storage.
void LateInput::fill(const at::Tensor& whole) const {
  if (whole.sizes() != tensor_.sizes() || !whole.is_contiguous())
    throw fail(ErrorCode::internal, "tensor_parallel/megatron: an input of ", tensor_.sizes(), " came as ",
               whole.sizes());
  auto held = std::make_unique<at::Tensor>(whole);
  void* data = whole.mutable_data_ptr();
  at::DataPtr memory(
      data, held.release(), [](void* tensor) { delete static_cast<at::Tensor*>(tensor); }, whole.device());
  tensor_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(memory));
}

}  // namespace drivetrain::megatron
