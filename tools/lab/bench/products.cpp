#include "bench/products.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include "report/matrix_products.h"

#include <drivetrain/toolkit/layers/grouped_product.h>
#include <drivetrain/toolkit/layers/linear.h>

namespace drivetrain {
namespace {

constexpr double kBudget = 3;  // seconds for all rounds
constexpr int kLeastRounds = 2, kMostRounds = 20;

// How many of `rows` each group gets.
at::Tensor equal_shares(int64_t rows, int64_t groups, const at::Device& device) {
  at::Tensor counts = at::full({groups}, rows / groups, at::kLong);
  counts.narrow(0, 0, rows % groups).add_(1);
  return counts.to(device);
}

// The three products as layers make them, with memory of their own.
TimedWork three_products(const at::TensorOptions& options, at::ScalarType grad, const Product& p) {
  const at::Tensor x = at::rand({p.rows, p.in}, options), w = at::rand({p.groups * p.out, p.in}, options),
                   dy = at::rand({p.rows, p.out}, options);
  const auto weight = std::make_shared<Param>("weight", Layout::whole({p.groups * p.out, p.in}), InitRule::zeros());
  weight->grad = at::zeros({p.groups * p.out, p.in}, options.dtype(grad));
  const at::Tensor counts = equal_shares(p.rows, p.groups, options.device());
  return [=, grouped = p.groups > 1] {
    weight->restart_grad();
    if (grouped) {
      const RowGroups groups(counts);  // a layer reads the counts anew, once for both of its matrices
      grouped_product(x, w, groups);
      grouped_product_backward(dy, w, groups);
      return accumulate_grouped_weight_grad(*weight, dy, x, groups);
    }
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
    one.set("rows", p.rows);
    one.set("out", p.out);
    one.set("in", p.in);
    one.set("groups", p.groups);
    one.set("count", p.count);
    one.set("seconds", p.seconds);
    one.set("tflops", p.flops() / p.seconds / 1e12);
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
  const int64_t tokens = run.plan.batch.micro_batch_size * run.plan.run.seq_length;
  const double per_step = static_cast<double>(run.plan.batch.accumulation);
  for (const MatrixShape& shape : matrix_products(run)) {
    Product p{tokens * shape.chosen, shape.out, shape.in, shape.groups, shape.count};
    const TimedWork work = three_products(options, run.services->dtypes.grad, p);
    work();
    std::vector<double> seconds;
    double sum = 0;
    while (static_cast<int>(seconds.size()) < kLeastRounds ||
           (sum < kBudget / 5 && static_cast<int>(seconds.size()) < kMostRounds)) {
      seconds.push_back(seconds_of_each(device, work));
      sum += seconds.back();
    }
    p.seconds = spread_of(seconds).min;
    const double times = per_step * static_cast<double>(p.count);
    products.seconds += times * p.seconds;
    products.flops += times * p.flops();
    products.list.push_back(p);
  }
  return products;
}

}  // namespace drivetrain
