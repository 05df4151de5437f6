#include "plan/plugins_that_offer.h"

#include <algorithm>

#include "plugin_calls/plugin_call.h"

namespace drivetrain {
namespace {

bool offers_here(const std::string& kind, const std::string& name, const std::string& ability, const Registry& registry,
                 const PreparedRun& run) {
  try {
    const auto plugin = registry.create_plugin(kind, name, nullptr, *run.services);
    PlanRecord context(run.plan.model, run.plan.run);
    const std::string id = kind + "/" + name;
    context.set_plugin(id);
    plugin_call({id, "plan"}, [&] { plugin->plan(context); });
    const auto& offers = context.offers();
    return context.refusals().empty() &&
           std::any_of(offers.begin(), offers.end(), [&](const auto& offer) { return offer.text == ability; });
  } catch (const Error&) {  // one that cannot be opened or made is no way out
    return false;
  }
}

}  // namespace

std::vector<std::string> plugins_that_offer(const std::string& ability, const Registry& registry,
                                            const PreparedRun& run) {
  const std::string kind = ability.substr(0, ability.find('.'));
  std::vector<std::string> ids;
  for (const KnownPlugin& known : registry.known()) {
    const bool fits = known.kind == kind && (known.device.empty() || known.device == run.plan.settings.device);
    const std::string id = kind + "/" + known.name;
    const bool is_chosen =
        std::any_of(run.chosen.begin(), run.chosen.end(), [&](const ChosenPlugin& c) { return c.id() == id; });
    if (fits && !is_chosen && offers_here(kind, known.name, ability, registry, run)) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace drivetrain
