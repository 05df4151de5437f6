#include "bench/products.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include "report/matrix_products.h"

#include <drivetrain/toolkit/layers/linear.h>

namespace drivetrain {
namespace {

constexpr double kBudget = 3;  // seconds for all rounds
constexpr int kLeastRounds = 2, kMostRounds = 20;

// The three products of one matrix as layers make them, with memory of their own.
TimedWork three_products(const at::TensorOptions& options, at::ScalarType grad, int64_t rows, int64_t out, int64_t in) {
  const at::Tensor x = at::rand({rows, in}, options), w = at::rand({out, in}, options),
                   dy = at::rand({rows, out}, options);
  const auto weight = std::make_shared<Param>("weight", Layout::whole({out, in}), InitRule::zeros());
  weight->grad = at::zeros({out, in}, options.dtype(grad));
  return [=] {
    weight->restart_grad();
    product(x, w);
    product_backward(dy, w);
    accumulate_weight_grad(*weight, dy, x);
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

Products time_products(const PreparedRun& run) {
  const at::NoGradGuard no_grad;
  const at::Device device = run.services->device;
  const at::TensorOptions options = at::TensorOptions(run.services->dtypes.param).device(device);
  Products products;
  products.rows = run.plan.batch.micro_batch_size * run.plan.run.seq_length;
  const double per_step = static_cast<double>(run.plan.batch.accumulation);
  for (const MatrixShape& shape : matrix_products(run)) {
    const TimedWork work = three_products(options, run.services->dtypes.grad, products.rows, shape.out, shape.in);
    work();
    std::vector<double> seconds;
    double sum = 0;
    while (static_cast<int>(seconds.size()) < kLeastRounds ||
           (sum < kBudget / 5 && static_cast<int>(seconds.size()) < kMostRounds)) {
      seconds.push_back(seconds_of_each(device, work));
      sum += seconds.back();
    }
    products.list.push_back({shape.out, shape.in, shape.count, spread_of(seconds).min});
    const double times = per_step * static_cast<double>(shape.count);
    products.seconds += times * products.list.back().seconds;
    products.flops += times * 6 * static_cast<double>(products.rows) * static_cast<double>(shape.out * shape.in);
  }
  return products;
}

}  // namespace drivetrain
