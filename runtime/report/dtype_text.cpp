#include "report/dtype_text.h"

#include <cstdio>

#include <drivetrain/toolkit/dtype_name.h>
#include "plan/choose_dtypes.h"

namespace drivetrain {
namespace {

std::string type_row(const char* what, at::ScalarType type, const std::string& source) {
  char text[128];
  std::snprintf(text, sizeof text, "\n  %-10s %-9s %s", what, dtype_name(type).c_str(), source.c_str());
  return text;
}

}  // namespace

std::string dtype_table(const Composition& run) {
  const Dtypes& types = run.services->dtypes;
  const std::string precision = run.precision ? id_of_precision(run) : "default";
  const std::string gradient = run.settings.data_types.grad_accum ? "data_types.grad_accum_dtype" : precision;
  const std::string reduce = run.settings.communication_data_type ? "communication_data_type" : gradient;
  return "types" + type_row("parameter", types.param, precision) + type_row("compute", types.param, precision) +
         type_row("gradient", types.grad, gradient) + type_row("reduce", types.reduce, reduce) +
         type_row("optimizer", types.master, precision);
}

}  // namespace drivetrain
