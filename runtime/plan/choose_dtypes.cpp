#include "plan/choose_dtypes.h"

#include <algorithm>

#include <drivetrain/toolkit/dtype_name.h>
#include <drivetrain/toolkit/text.h>

#include "plugin_calls/plugin_call.h"

namespace drivetrain {
namespace {

// How a config chooses one of the installed precisions: "bf16" or "precision": "mine".
std::string precision_sections(const Registry& registry) {
  std::vector<std::string> sections;
  for (const KnownPlugin& known : registry.known())
    if (known.kind == Precision::kKind)
      sections.push_back(known.section.empty() ? concat("\"", known.kind, "\": \"", known.name, "\"")
                                               : concat("\"", known.section, "\""));
  std::sort(sections.begin(), sections.end());
  return sections.empty() ? "none is installed" : "sections " + join(sections);
}

// What the configuration says of types, over what the precision says. A gradient slot is as wide as the products that
// are added to it, or wider: between the two 16-bit types every one of them would be rounded twice.
void take_settings(DtypePlan& plan, const RunSettings& settings, const std::string& precision,
                   const Registry& registry) {
  const DataTypes& asked = settings.data_types;
  Dtypes& types = plan.types;
  if (asked.grad_accum) {
    types.grad = types.reduce = *dtype_of(*asked.grad_accum);
    plan.gradient = plan.reduce = "data_types.grad_accum_dtype";
  }
  if (settings.communication_data_type) {
    types.reduce = *dtype_of(*settings.communication_data_type);
    plan.reduce = "communication_data_type";
  }
  Problems problems;
  const std::string given = concat(dtype_name(types.param),
                                   precision.empty() ? ", for no precision is chosen" : ", the type of " + precision);
  if (asked.param && *dtype_of(*asked.param) != types.param)
    problems.add(settings.types_where,
                 concat("data_types.param_dtype is \"", *asked.param, "\", but parameters are ", given,
                        "\n   remove it, or enable that precision (", precision_sections(registry), ")"));
  if (asked.grad_accum && types.grad != at::kFloat && types.grad != types.param)
    problems.add(settings.types_where,
                 concat("data_types.grad_accum_dtype is \"", *asked.grad_accum, "\", but parameters are ", given,
                        "\n   gradients are float32 or of the parameters' type: remove it, or enable that precision"));
  problems.throw_if_any();
}

void check_dtypes(const Dtypes& types, const std::string& precision) {
  const auto wide = [](at::ScalarType type) { return type == at::kFloat || type == at::kDouble; };
  if (c10::isFloatingType(types.param) && c10::isFloatingType(types.grad) && c10::isFloatingType(types.reduce) &&
      wide(types.master))
    return;
  throw fail(ErrorCode::plugin, precision, " asks for parameters in ", c10::toString(types.param), ", gradients in ",
             c10::toString(types.grad), ", their sums in ", c10::toString(types.reduce), " and masters in ",
             c10::toString(types.master), "; the first three must be floating types, masters Float or Double");
}

}  // namespace

void choose_dtypes(PreparedRun& run, const Registry& registry) {
  DtypePlan& plan = run.plan.dtypes;
  const std::string precision = run.plan.id_of(Precision::kKind);
  if (run.plugins.precision) {
    plan.types = plugin_call({precision, "dtypes"}, [&] { return run.plugins.precision->dtypes(); });
    plan.precision = plan.gradient = plan.reduce = precision;
  }
  check_dtypes(plan.types, precision);
  take_settings(plan, run.plan.settings, precision, registry);
  run.services->dtypes = plan.types;
  run.plan.run.compute_dtype = dtype_name(plan.types.param);
  run.plan.run.compute_bytes = static_cast<double>(c10::elementSize(plan.types.param));
}

}  // namespace drivetrain
