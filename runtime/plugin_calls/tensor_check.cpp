#include "plugin_calls/tensor_check.h"

#include <drivetrain/error.h>

#include <drivetrain/toolkit/dtype_name.h>

namespace drivetrain {

std::string tensor_problem(const at::Tensor& found, const WantedTensor& wanted) {
  if (found.defined() && found.sizes() == wanted.sizes && found.scalar_type() == wanted.dtype &&
      found.device() == wanted.device && found.layout() == at::kStrided)
    return {};
  const std::string text = concat("wanted ", dtype_name(wanted.dtype), " ", wanted.sizes, " on ", wanted.device);
  if (!found.defined()) return text + ", found no tensor";
  if (found.layout() != at::kStrided) return text + concat(", found a tensor with layout ", found.layout());
  return text + concat(", found ", dtype_name(found.scalar_type()), " ", found.sizes(), " on ", found.device());
}

}  // namespace drivetrain
