#include "plan/choose_dtypes.h"

#include <drivetrain/toolkit/dtype_name.h>
#include "checks/plugin_call.h"

namespace drivetrain {
namespace {

// What the configuration says of types, over what the precision says. A gradient slot is as wide as the products that
// are added to it, or wider: between the two 16-bit types every one of them would be rounded twice.
void ask_for_dtypes(Composition& run, Dtypes& types) {
  const DataTypes& asked = run.settings.data_types;
  if (asked.grad_accum) types.grad = types.reduce = *dtype_of(*asked.grad_accum);
  if (run.settings.communication_data_type) types.reduce = *dtype_of(*run.settings.communication_data_type);
  Problems problems;
  const std::string given = concat(dtype_name(types.param), run.precision ? ", the type of " + id_of_precision(run)
                                                                          : ", for no precision is chosen");
  if (asked.param && *dtype_of(*asked.param) != types.param)
    problems.add(run.settings.types_where,
                 concat("data_types.param_dtype is \"", *asked.param, "\", but parameters are ", given,
                        "\n   remove it, or enable that precision (sections \"bf16\", \"fp16\")"));
  if (asked.grad_accum && types.grad != at::kFloat && types.grad != types.param)
    problems.add(run.settings.types_where,
                 concat("data_types.grad_accum_dtype is \"", *asked.grad_accum, "\", but parameters are ", given,
                        "\n   gradients are float32 or of the parameters' type: remove it, or enable that precision"));
  problems.throw_if_any();
}

}  // namespace

std::string id_of_precision(const Composition& run) { return run.id_of(Precision::kKind); }

void settle_dtypes(Composition& run) {
  const std::string id = id_of_precision(run);
  if (run.precision) run.services->dtypes = plugin_call({id, "dtypes"}, [&] { return run.precision->dtypes(); });
  Dtypes& types = run.services->dtypes;
  const auto wide = [](at::ScalarType type) { return type == at::kFloat || type == at::kDouble; };
  if (!c10::isFloatingType(types.param) || !c10::isFloatingType(types.grad) || !c10::isFloatingType(types.reduce) ||
      !wide(types.master))
    throw fail(ErrorCode::plugin, id, " asks for parameters in ", c10::toString(types.param), ", gradients in ",
               c10::toString(types.grad), ", their sums in ", c10::toString(types.reduce), " and masters in ",
               c10::toString(types.master), "; the first three must be floating types, masters Float or Double");
  ask_for_dtypes(run, types);
  run.run.compute_dtype = dtype_name(types.param);
  run.run.compute_bytes = static_cast<double>(c10::elementSize(types.param));
}

}  // namespace drivetrain
