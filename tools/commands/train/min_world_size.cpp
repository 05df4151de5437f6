#include "train/min_world_size.h"

#include "plan/plugin_maker.h"
#include "plugin_calls/plugin_call.h"

namespace drivetrain {
namespace {

// No run has more. Sizes that make more are told where they do not fit the ranks that there are.
constexpr int64_t kMostRanks = 1 << 20;

int64_t claimed_ranks(const RunSettings& settings, const std::vector<ChosenPlugin>& chosen, const Registry& registry,
                      const Services& services) {
  std::vector<std::pair<std::string, std::shared_ptr<Plugin>>> plugins;
  ModelFacts facts;
  for (const ChosenPlugin& plugin : chosen) {
    if (!plugin.selection.enabled || plugin.kind() == Communicator::kKind) continue;
    const auto object = registry.create_plugin(plugin.kind(), plugin.name(), plugin.options.get(), services);
    const std::string id = plugin.id();
    if (const auto model = std::dynamic_pointer_cast<Model>(object))
      facts = plugin_call({id, "facts"}, [&] { return model->facts(); });
    plugins.emplace_back(plugin.id(), object);
  }
  RunFacts run;
  run.device = settings.device;
  PlanRecord context(facts, run);
  for (const auto& [id, plugin] : plugins) {
    context.set_plugin(id);
    plugin_call({id, "plan"}, [&] { plugin->plan(context); });
  }
  return count_ranks(context, run);
}

}  // namespace

int64_t min_world_size(const RunSettings& settings, const std::vector<ChosenPlugin>& chosen, const Registry& registry,
                       const RankSetup& setup) {
  Services services{*setup.log, *setup.store, 0, 1, 0, 1, at::Device(at::kCPU), static_cast<uint64_t>(settings.seed),
                    {},         nullptr};
  const auto maker = make_plugin_maker(registry, services);
  services.plugins = maker.get();
  try {
    const int64_t ranks = claimed_ranks(settings, chosen, registry, services);
    return ranks <= kMostRanks ? ranks : 1;
  } catch (const Error&) {
    return 1;
  }
}

}  // namespace drivetrain
