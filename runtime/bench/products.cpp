#include "bench/products.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace drivetrain {
namespace {

constexpr double kBudget = 3;  // seconds for all rounds
constexpr int kLeastRounds = 2, kMostRounds = 20;

using ProductShapes = std::map<std::pair<int64_t, int64_t>, int64_t>;  // (out, in) -> matrices

ProductShapes product_shapes(const PlannedRun& run) {
  ProductShapes shapes;
  std::vector<std::pair<int64_t, int64_t>> tables;
  double elements = 0;
  for (const ParamPtr& param : run.units.all()) {
    const std::vector<int64_t> shape = param->layout.local_shape(*run.mesh);
    if (shape.size() != 2) continue;
    if (param->embedding) {
      tables.emplace_back(shape[0], shape[1]);
      continue;
    }
    ++shapes[{shape[0], shape[1]}];
    elements += static_cast<double>(shape[0] * shape[1]);
  }
  // Six operations per element and token, forward and backward: what is left over is the output layer's, tied or not.
  const double left = run.plan.model.flops_per_token_fixed / 6 - elements;
  for (const auto& table : tables)
    if (std::abs(left - static_cast<double>(table.first * table.second)) < 0.5) {
      ++shapes[table];
      break;
    }
  return shapes;
}

// The three products of one matrix, with memory of their own.
TimedWork three_products(const at::TensorOptions& options, int64_t rows, int64_t out, int64_t in) {
  const at::Tensor x = at::rand({rows, in}, options), w = at::rand({out, in}, options),
                   y = at::rand({rows, out}, options);
  const at::Tensor dx = at::empty({rows, in}, options), dw = at::empty({out, in}, options);
  return [=] {
    at::Tensor to_y = y, to_dx = dx, to_dw = dw;
    at::mm_out(to_y, x, w.t());
    at::mm_out(to_dx, y, w);
    at::mm_out(to_dw, y.t(), x);
  };
}

}  // namespace

Value Products::to_value() const {
  Value shapes = Value::array();
  for (const Product& p : list) {
    Value one = Value::object();
    one.set("rows", rows);
    one.set("out", p.out);
    one.set("in", p.in);
    one.set("count", p.count);
    one.set("seconds", p.seconds);
    one.set("tflops", 6.0 * static_cast<double>(rows * p.out * p.in) / p.seconds / 1e12);
    shapes.items().push_back(std::move(one));
  }
  Value value = Value::object();
  value.set("seconds", seconds);
  value.set("tflops", rate() / 1e12);
  value.set("shapes", std::move(shapes));
  return value;
}

Products time_products(const PlannedRun& run) {
  const at::NoGradGuard no_grad;
  const at::Device device = run.services->device;
  const at::TensorOptions options = at::TensorOptions(run.services->dtypes.param).device(device);
  Products products;
  products.rows = run.plan.batch.micro_batch_size * run.plan.run.seq_length;
  const double per_step = static_cast<double>(run.plan.batch.accumulation);
  for (const auto& [shape, count] : product_shapes(run)) {
    const TimedWork work = three_products(options, products.rows, shape.first, shape.second);
    work();
    std::vector<double> seconds;
    double sum = 0;
    while (static_cast<int>(seconds.size()) < kLeastRounds ||
           (sum < kBudget / 5 && static_cast<int>(seconds.size()) < kMostRounds)) {
      seconds.push_back(seconds_of_each(device, work));
      sum += seconds.back();
    }
    products.list.push_back({shape.first, shape.second, count, spread_of(seconds).min});
    const double times = per_step * static_cast<double>(count);
    products.seconds += times * products.list.back().seconds;
    products.flops += times * 6 * static_cast<double>(products.rows) * static_cast<double>(shape.first * shape.second);
  }
  return products;
}

}  // namespace drivetrain
