#include <drivetrain/tensor_parallel.h>

namespace drivetrain {

TensorParallel::~TensorParallel() = default;

}  // namespace drivetrain
