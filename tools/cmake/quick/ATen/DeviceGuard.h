// Stands before the header of LibTorch 2.11 of this name, in builds of this tree only. Every header of an operator
// includes that one, for guards that code outside of LibTorch does not use, and its overload for lists of tensors
// brings ATen/core/ivalue.h: about a second of a compiler for every source that includes any operator. This one has
// the other two overloads. ATen/ops/cat.h beside it brings the list back where an operator takes one.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/ScalarType.h>

namespace at {

inline std::optional<Device> device_of(const Tensor& t) {
  return t.defined() ? std::optional<Device>(t.device()) : std::nullopt;
}

inline std::optional<Device> device_of(const std::optional<Tensor>& t) {
  return t.has_value() ? device_of(t.value()) : std::nullopt;
}

}  // namespace at
