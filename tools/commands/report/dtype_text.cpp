#include "report/dtype_text.h"

#include <drivetrain/toolkit/dtype_name.h>
#include <drivetrain/toolkit/layers/short_product.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain {
namespace {

std::string type_row(const char* what, at::ScalarType type, const std::string& source) {
  return formatted("\n  %-10s %-9s %s", what, dtype_name(type).c_str(), source.c_str());
}

// What multiplies matrices, where it is not simply float32.
std::string products_row(const RunPlan& plan) {
  const std::string& precision = plan.settings.float32_matmul_precision;
  if (plan.run.device != "cpu")
    return precision == "highest" || plan.dtypes.types.param != at::kFloat
               ? ""
               : formatted("\n  %-10s %-9s float32_matmul_precision %s", "products", "tf32", precision.c_str());
  const ProductsText text = products_text(plan.dtypes.types.param, precision);
  return text.how.empty() ? "" : formatted("\n  %-10s %-9s %s", "products", text.type.c_str(), text.how.c_str());
}

}  // namespace

std::string dtype_table(const RunPlan& plan) {
  const DtypePlan& dtypes = plan.dtypes;
  const Dtypes& types = dtypes.types;
  return "types" + type_row("parameter", types.param, dtypes.precision) +
         type_row("compute", types.param, dtypes.precision) + products_row(plan) +
         type_row("gradient", types.grad, dtypes.gradient) + type_row("reduce", types.reduce, dtypes.reduce) +
         type_row("optimizer", types.master, dtypes.precision);
}

}  // namespace drivetrain
