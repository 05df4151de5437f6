#include "report/matrix_products.h"

#include <cmath>
#include <map>

namespace drivetrain {

std::vector<MatrixShape> matrix_products(const PreparedRun& run) {
  std::map<std::pair<int64_t, int64_t>, MatrixShape> shapes;
  std::vector<std::pair<const Param*, std::pair<int64_t, int64_t>>> tables;
  const auto add = [&](const Param& param, const std::pair<int64_t, int64_t>& size) {
    MatrixShape& shape = shapes.try_emplace(size, MatrixShape{size.first, size.second, 0, param.name}).first->second;
    ++shape.count;
  };
  double elements = 0;
  for (const ParamPtr& param : run.units.all()) {
    const std::vector<int64_t> shape = param->layout.local_shape(*run.mesh);
    if (shape.size() != 2) continue;
    if (param->role == ParamRole::embedding || param->role == ParamRole::output) {
      tables.emplace_back(param.get(), std::pair(shape[0], shape[1]));
      continue;
    }
    add(*param, {shape[0], shape[1]});
    elements += static_cast<double>(shape[0] * shape[1]);
  }
  // Six operations per element and token, forward and backward: what is left over is the output layer's, tied or not.
  const double left = run.plan.model_alone.flops_per_token_fixed / 6 - elements;
  for (const auto& [param, size] : tables)
    if (std::abs(left - static_cast<double>(size.first * size.second)) < 0.5) {
      add(*param, size);
      break;
    }
  std::vector<MatrixShape> list;
  for (const auto& entry : shapes) list.push_back(entry.second);
  return list;
}

}  // namespace drivetrain
