#include "step/span_check.h"

#include <drivetrain/error.h>

#include "base/digest.h"
#include "plugin_calls/plugin_call.h"

namespace drivetrain {
namespace {

uint64_t digest_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().cpu().contiguous();
  return drivetrain::digest_of(values.const_data_ptr(), values.nbytes());
}

// A storage owner frees the memory of values that nobody needs.
bool is_in_memory(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_meta() &&
         tensor.storage().nbytes() >=
             static_cast<size_t>(tensor.storage_offset()) * tensor.itemsize() + tensor.nbytes();
}

constexpr const char* kInvariant =
    "\n   outside of a unit's hooks only the storage owner may touch its parameters, inside of them nobody may change "
    "them";

}  // namespace

const std::string& SpanCheck::unit_of(const Param& param) const {
  for (const UnitPtr& unit : units_.units)
    for (const ParamPtr& own : unit->params())
      if (own.get() == &param) return unit->name();
  static const std::string none = "none";
  return none;
}

void SpanCheck::opened(const Unit& unit) {
  for (const ParamPtr& param : unit.params()) {
    if (!is_in_memory(param->tensor)) continue;
    const uint64_t digest = digest_of(param->tensor);
    const auto [known, fresh] = known_.emplace(param.get(), digest);
    if (fresh || known->second == digest) continue;
    throw fail(ErrorCode::plugin, "unit ", unit.name(), ", rank ", work_rank().rank, ": the values of ", param->name,
               " are not those of its visit before, though no update was between: something wrote to them outside of "
               "every hook",
               kInvariant);
  }
}

SpanCheck::Watched SpanCheck::values_in_memory() const {
  Watched values;
  for (const auto& [param, digest] : known_)
    if (is_in_memory(param->tensor) && digest_of(param->tensor) == digest) values.emplace_back(param, digest);
  return values;
}

void SpanCheck::compare(const Watched& before) const {
  for (const auto& [param, digest] : before)
    if (is_in_memory(param->tensor) && digest_of(param->tensor) != digest)
      throw fail(ErrorCode::plugin, "wrote to the values of ", param->name, " of unit ", unit_of(*param), kInvariant);
}

std::vector<Param*> SpanCheck::without_gradient(const std::vector<Param*>& params) const {
  std::vector<Param*> without;
  for (Param* param : params)
    if (param->grad.defined() && !param->has_grad()) without.push_back(param);
  return without;
}

void SpanCheck::expect_gradients(const std::vector<Param*>& without_before) const {
  for (const Param* param : without_before)
    if (!param->has_grad())
      throw fail(ErrorCode::plugin, "wrote no gradient of ", param->name,
                 "\n   write it with Param::write_grad or accumulate_grad, or set Param::trainable to false");
}

}  // namespace drivetrain
