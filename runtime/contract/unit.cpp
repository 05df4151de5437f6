#include <drivetrain/unit.h>

#include <algorithm>

namespace drivetrain {

Unit::~Unit() = default;

void Unit::backward_weight(StepContext&, Saved& saved) {
  for (const auto& work : saved.weight_work) work();
  saved.weight_work.clear();
}

std::optional<VisitMemory> Unit::visit_memory(const VisitShape& shape, const KeepOfRegion& keep) const {
  const auto keeps = this->keeps();
  if (!keeps) return std::nullopt;
  const auto bytes = [&](const KeptElements& kept) {
    return (kept.whole * shape.rank_tokens + kept.shared * shape.tokens / static_cast<double>(shape.tensor_ranks)) *
           shape.element();
  };
  VisitMemory memory;
  memory.kept.add(bytes(keeps->all));
  for (const UnitKeeps::Region& region : keeps->regions)
    if (keep(region.name) != Keep::all) memory.kept.add(bytes(region.freed), -1);
  memory.inputs.add(bytes(keeps->inputs));
  return memory;
}

std::vector<ParamPtr> UnitList::owned(size_t unit) const {
  std::vector<ParamPtr> earlier;
  for (size_t i = 0; i < unit; ++i) {
    const auto params = units[i]->params();
    earlier.insert(earlier.end(), params.begin(), params.end());
  }
  std::vector<ParamPtr> list;
  for (const ParamPtr& param : units[unit]->params())
    if (std::find(earlier.begin(), earlier.end(), param) == earlier.end()) list.push_back(param);
  return list;
}

std::vector<ParamPtr> UnitList::all() const {
  std::vector<ParamPtr> list;
  for (size_t i = 0; i < units.size(); ++i)
    for (const ParamPtr& param : owned(i)) list.push_back(param);
  return list;
}

}  // namespace drivetrain
