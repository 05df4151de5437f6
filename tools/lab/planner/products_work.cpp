#include "planner/products_work.h"

#include <cmath>
#include <string>

namespace drivetrain {
namespace {

// Operands in 8 bits: x and W are cast forward and, transposed, backward; dy once into both. A cast reads twice, for
// the largest value and for what it writes, unless the plugin says that it reads once; weights that it keeps are cast
// once per update, into both. Passes count three times forward.
void add_casts(StepWork& work, const RunPlan& plan) {
  const auto says = [&](const char* word) { return plan.dtypes.products.find(word) != std::string::npos; };
  if (!says(".float8")) return;
  const char* const type = says(".of_blocks") ? "float8_blocks" : "float8";
  const double cast = (says(".read_once") ? 1 : 2) * plan.run.compute_bytes + 1, both = cast + 1;
  const double weight = says(".weights_kept") ? both / static_cast<double>(plan.batch.accumulation) : 2 * cast;
  for (ProductWork& p : work.products) {
    p.dtype = type;
    work.passed_bytes += p.count * ((2 * cast * p.rows + weight * p.out) * p.in + both * p.rows * p.out) / 3;
  }
}

// Where casts compute what they read, a norm's output, the activation and its gradient are not written in 16 bits and
// read again, by casts forward and for the weight's gradient; a second read, for the largest value, computes anew.
// So for each block that is kept from forward to backward. Layers that are cut or adapted have casts of their own, and
// of frozen weights there is no gradient; a gradient whose sum a bias wants is written, which is taken for that of MLPs
// without a gate.
void take_off_operands(StepWork& work, const RunPlan& plan, const ModelShape& shape, const ShapeCuts& cuts) {
  const std::string& products = plan.dtypes.products;
  const auto says = [&](const char* word) { return products.find(word) != std::string::npos; };
  if (!says(".takes_operands") || !says(".gives_operands") || cuts.tensor > 1 || plan.model.mixture.experts > 0) return;
  if (plan.run.rank_trained.value_or(1) < plan.run.rank_share.value_or(1)) return;
  const double reads = says(".read_once") ? 1 : 2, wide = shape.gated ? 2 : 1;
  const double norms = 2 * shape.hidden * (1 + reads);
  const double activation = shape.ffn * (1 + 2 * reads - (reads - 1) * wide);
  const double gradient = shape.gated ? wide * shape.ffn * (1 + reads - (reads - 1) * (1 + 1 / wide)) : 0;
  work.passed_bytes -= shape.layers / cuts.stages * cuts.tokens * cuts.element * (norms + activation + gradient) / 3;
}

// GELU in the epilogues of products: the first product writes what it is of and what it gives, the second's gradient
// reads the former. A pass of its own would read the former and, backward, write the gradient between.
void take_off_gelu(StepWork& work, const RunPlan& plan, const ModelShape& shape, const ShapeCuts& cuts) {
  const std::string& products = plan.dtypes.products;
  if (products.find(".gelu_fusion") == std::string::npos || products.find(".float8") != std::string::npos) return;
  if (shape.gated || cuts.tensor > 1 || std::fmod(shape.ffn, 8) != 0) return;
  if (plan.run.rank_trained.value_or(1) < plan.run.rank_share.value_or(1)) return;  // adapters, which have products
  work.passed_bytes -= shape.layers / cuts.stages * cuts.tokens * cuts.element * 2 * shape.ffn / 3;
}

}  // namespace

void add_products_work(StepWork& work, const RunPlan& plan, const ModelShape& shape, const ShapeCuts& cuts) {
  add_casts(work, plan);
  take_off_operands(work, plan, shape, cuts);
  take_off_gelu(work, plan, shape, cuts);
}

}  // namespace drivetrain
