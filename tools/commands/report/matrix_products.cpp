#include "report/matrix_products.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace drivetrain {
namespace {

// Of a parameter [groups * out, in] of experts, of which a rank has `rows` of all rows.
MatrixShape shape_of_experts(const Param& param, int64_t rows, int64_t in, const ModelFacts::Mixture& mixture) {
  MatrixShape shape;
  shape.out = param.layout.global_shape[0] / mixture.experts, shape.in = in, shape.first = param.name;
  shape.groups = std::max<int64_t>(rows / std::max<int64_t>(shape.out, 1), 1), shape.chosen = mixture.chosen;
  return shape;
}

}  // namespace

std::vector<MatrixShape> matrix_products(const PreparedRun& run) {
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t>, MatrixShape> shapes;
  std::vector<std::pair<const Param*, std::pair<int64_t, int64_t>>> tables;
  const auto add = [&](const MatrixShape& one) {
    ++shapes.try_emplace(std::tuple(one.out, one.in, one.groups, one.chosen), one).first->second.count;
  };
  const ModelFacts::Mixture& mixture = run.plan.model_alone.mixture;
  double elements = 0;
  for (const ParamPtr& param : run.units.all()) {
    const std::vector<int64_t> shape = param->layout.local_shape(*run.mesh);
    if (shape.size() != 2) continue;
    if (param->role == ParamRole::embedding || param->role == ParamRole::output) {
      tables.emplace_back(param.get(), std::pair(shape[0], shape[1]));
      continue;
    }
    const MatrixShape one = param->role == ParamRole::expert && mixture.experts > 0
                                ? shape_of_experts(*param, shape[0], shape[1], mixture)
                                : MatrixShape{shape[0], shape[1], 0, param->name};
    add(one);
    elements += static_cast<double>(one.chosen * one.out * one.in);
  }
  // Six operations per element and token, forward and backward: what is left over is the output layer's, tied or not.
  const double left = run.plan.model_alone.flops_per_token_fixed / 6 - elements;
  for (const auto& [param, size] : tables)
    if (std::abs(left - static_cast<double>(size.first * size.second)) < 0.5) {
      add({size.first, size.second, 0, param->name});
      break;
    }
  std::vector<MatrixShape> list;
  for (const auto& entry : shapes) list.push_back(entry.second);
  return list;
}

}  // namespace drivetrain
