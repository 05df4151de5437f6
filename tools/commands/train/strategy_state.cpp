#include "train/strategy_state.h"

#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/layers/plain_layers.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "log/log_console.h"
#include "plugin_calls/plugin_call.h"
#include "state/hf_folder.h"
#include "step/named_state.h"

namespace drivetrain {
namespace {

constexpr const char* kWithoutStateOf = "without_state_of";  // in the metadata of a file

// Names alone.
class StateNames final : public StateVisitor {
 public:
  explicit StateNames(std::vector<std::string>& into) : names(into) {}
  void tensor(const std::string& name, at::Tensor&, const Layout&) override { names.push_back(name); }
  void integer(const std::string& name, int64_t&) override { names.push_back(name); }
  void number(const std::string& name, double&) override { names.push_back(name); }

 private:
  std::vector<std::string>& names;
};

}  // namespace

bool decorates(const ChosenPlugin& plugin, const PreparedRun& run, const Registry& registry) {
  const std::shared_ptr<Log> log = make_console_log({.level = LogLevel::error});
  const Services services{*log,
                          *run.store,
                          run.services->rank,
                          run.services->world_size,
                          run.services->local_rank,
                          run.services->local_size,
                          run.services->device,
                          run.services->seed,
                          {},
                          run.mesh.get(),
                          run.services->plugins};
  const auto strategy = registry.create<Strategy>(plugin.name(), plugin.options.get(), services);
  const std::shared_ptr<Attention> attention = run.plugins.attention;
  Builder builder{nullptr, attention, *run.mesh, run.plan.model};
  builder.weight_rules = [&](const std::string& format) {
    return plugin_call({run.plan.id_of(Model::kKind), "weight_rules"},
                       [&] { return run.plugins.model->weight_rules(format); });
  };
  const std::shared_ptr<LayerFactory> layers = make_plain_layers(builder.attention());
  builder.layers = layers;
  plugin_call({plugin.id(), "build"}, [&] { strategy->build(builder); });
  return builder.layers != layers || builder.finish_attention() != attention || !builder.batch_cuts.empty() ||
         !builder.activation_cuts.empty();
}

void visit_strategy(const NamedStrategy& named, StateVisitor& visitor) {
  NamedState own(visitor, named.id);
  plugin_call({named.id, "state"}, [&] { named.strategy->state(own); });
}

std::vector<const NamedStrategy*> keeping_state(const PreparedRun& run, std::vector<std::string>& names) {
  StateNames visitor(names);
  std::vector<const NamedStrategy*> keeping;
  for (const NamedStrategy& named : run.plugins.strategies) {
    if (!named.id.starts_with(std::string(Strategy::kKind) + "/")) continue;
    const size_t before = names.size();
    visit_strategy(named, visitor);
    if (names.size() > before) keeping.push_back(&named);
  }
  return keeping;
}

std::set<std::string> strategies_with_state(const Checkpoint& checkpoint) {
  const std::string kind = concat(Strategy::kKind, "/");
  std::set<std::string> ids;
  for (const StoredTensor& tensor : checkpoint.tensors())
    if (tensor.name.starts_with(kind)) ids.insert(tensor.name.substr(0, tensor.name.find('/', kind.size())));
  return ids;
}

void name_left_state(ExportedWeights& model, const PreparedRun& run) {
  std::vector<std::string> names, left;
  for (const NamedStrategy* const named : keeping_state(run, names))
    for (const ChosenPlugin& plugin : run.chosen)
      if (plugin.id() == named->id && decorates(plugin, run, run.folders->registry())) left.push_back(named->id);
  if (!left.empty()) model.metadata[kWithoutStateOf] = join(left);
}

void warn_of_left_state(const std::string& folder, Log& log) {
  if (folder.empty() || !HfFolder::has_weights(folder)) return;
  const HfFolder weights(folder);
  const std::vector<std::string> names = weights.names();
  if (names.empty()) return;
  for (const auto& [key, text] : weights.file_of(names.front())->metadata())
    if (key == kWithoutStateOf)
      log.warning(concat(one_line(folder), " has no place for the state of ", one_line(text),
                         ", by which the run that wrote it computed: without it this is another model\n   ",
                         "`generate` and `evaluate` of that run's folder have it from its checkpoint"));
}

}  // namespace drivetrain
