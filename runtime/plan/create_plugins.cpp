#include "plan/create_plugins.h"

#include <algorithm>

#include <drivetrain/context_parallel.h>
#include <drivetrain/expert_parallel.h>
#include <drivetrain/tensor_parallel.h>

#include "plan/named_plugins.h"
#include "plan/plain_storage.h"
#include "plan/plugin_maker.h"

namespace drivetrain {
namespace {

// Policies of one type are told apart, in messages and in the state that they keep: the second is "NAME 2".
std::string numbered(const std::string& id, const std::vector<NamedPolicy>& others) {
  const auto same = std::count_if(others.begin(), others.end(), [&](const NamedPolicy& other) {
    return other.id == id || other.id.starts_with(id + " ");
  });
  return same == 0 ? id : concat(id, " ", same + 1);
}

// Creates every chosen plugin of `Kind` and remembers it for the negotiation.
struct Factory {
  const Registry& registry;
  PreparedRun& run;
  NamedPlugins made = {};

  // `outside_of`: of those, the ones that the config puts there.
  template <class Kind>
  std::vector<std::shared_ptr<Kind>> all(Strategies* named = nullptr, const std::string& outside_of = "") {
    std::vector<std::shared_ptr<Kind>> list;
    for (const ChosenPlugin& plugin : run.chosen) {
      if (plugin.kind() != Kind::kKind || !plugin.selection.enabled) continue;
      if (plugin.selection.outside_of != outside_of) continue;
      const auto object = registry.create<Kind>(plugin.name(), plugin.options.get(), *run.services);
      made.emplace_back(plugin.id(), object);
      list.push_back(object);
      if constexpr (std::is_base_of_v<Strategy, Kind>)
        if (named) named->push_back({plugin.id(), object});
    }
    return list;
  }
  // Of a kind that acts around the model; first come strategies that the config puts directly outside of it.
  template <class Kind>
  std::vector<std::shared_ptr<Kind>> around() {
    all<Strategy>(&run.plugins.strategies, Kind::kKind);
    return all<Kind>(&run.plugins.strategies);
  }
  template <class Kind>
  std::shared_ptr<Kind> one() {
    const auto list = all<Kind>();
    return list.empty() ? nullptr : list.front();
  }
};

// A set that says no interval has the section's, and that one eval_interval.
std::vector<NamedEvaluation> create_evaluations(Factory& factory) {
  const RunSettings& settings = factory.run.plan.settings;
  const int64_t usual = settings.eval.interval.value_or(settings.eval_interval);
  std::vector<const Selection*> sets;
  for (const ChosenPlugin& plugin : factory.run.chosen)
    if (plugin.kind() == Evaluation::kKind && plugin.selection.enabled) sets.push_back(&plugin.selection);
  std::vector<NamedEvaluation> list;
  size_t at = factory.made.size();
  for (const auto& evaluation : factory.all<Evaluation>()) {
    const Selection& set = *sets.at(list.size());
    list.push_back({set.set, factory.made[at++].first, set.interval.value_or(usual), evaluation});
  }
  return list;
}

// Null stays null.
template <class Named, class Kind, class... More>
std::shared_ptr<Kind> named(const PreparedRun& run, std::shared_ptr<Kind> plugin, More&&... more) {
  if (!plugin) return nullptr;
  return std::make_shared<Named>(run.plan.id_of(Kind::kKind), std::move(plugin), std::forward<More>(more)...);
}

}  // namespace

NamedPlugins create_plugins(PreparedRun& run, const Registry& registry) {
  run.maker = make_plugin_maker(registry, *run.services);
  run.services->plugins = run.maker.get();
  Factory factory{registry, run};
  run.plugins.model = factory.one<Model>();
  run.plugins.schedule = named<NamedSchedule>(run, factory.one<Schedule>());
  const auto owners = factory.all<DataParallel>(&run.plugins.strategies);
  run.plugins.data_parallel = owners.empty() ? std::make_shared<PlainStorage>(*run.services) : owners.front();
  if (owners.empty()) {
    run.plugins.strategies.push_back({"the runtime's plain storage", run.plugins.data_parallel});
    factory.made.emplace_back(run.plugins.strategies.back().id, run.plugins.data_parallel);
  }
  const auto recomputes = factory.around<Recompute>();
  run.plugins.recompute = recomputes.empty() ? nullptr : recomputes.front();
  factory.around<ContextParallel>();
  factory.around<TensorParallel>();
  factory.around<ExpertParallel>();
  const auto precisions = factory.around<Precision>();
  run.plugins.precision = precisions.empty() ? nullptr : precisions.front();
  factory.all<Strategy>(&run.plugins.strategies, Attention::kKind);
  run.plugins.attention = factory.one<Attention>();
  factory.around<Strategy>();
  run.plugins.optimizer = factory.one<Optimizer>();
  run.plugins.lr_schedule = factory.one<LrSchedule>();
  run.plugins.dataset = factory.one<Dataset>();
  run.plugins.communicator = named<NamedCommunicator>(run, factory.one<Communicator>(), run.flight);
  for (size_t at = factory.made.size(); const auto& monitor : factory.all<Monitor>())
    run.plugins.monitors.push_back({factory.made[at++].first, monitor});
  run.plugins.checkpoint_store = factory.one<CheckpointStore>();
  for (size_t at = factory.made.size(); const auto& policy : factory.all<CheckpointPolicy>())
    run.plugins.checkpoint_policies.push_back(
        {numbered(factory.made[at++].first, run.plugins.checkpoint_policies), policy});
  run.plugins.evaluations = create_evaluations(factory);
  run.folders = std::make_unique<const FolderReaders>(registry, *run.services);
  for (const NamedStrategy& strategy : run.plugins.strategies) run.plan.nesting.push_back(strategy.id);
  return std::move(factory.made);
}

}  // namespace drivetrain
