// Creates the chosen plugins and lets them negotiate. Nothing big is allocated here and no rank waits for another.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <limits>

#include "checks/plugin_call.h"
#include "plan/choose_dtypes.h"
#include "plan/composition.h"
#include "plan/named_plugins.h"
#include "plan/plain_storage.h"
#include "plan/plugins_that_offer.h"

namespace drivetrain {
namespace {

// The kinds between recompute and precision in the onion, and the one inside of all, have no class of their own.
constexpr const char* kMiddleStrategies[] = {"context_parallel", "tensor_parallel"};

// A name only: a plan is made on machines without the device too.
at::Device device_of(const std::string& name, int64_t local_rank) {
  return name == "cpu" ? at::Device(at::kCPU) : at::Device(at::kCUDA, static_cast<at::DeviceIndex>(local_rank));
}

// Creates every chosen plugin of `Kind` and remembers it for the negotiation.
struct Factory {
  const Registry& registry;
  Composition& run;
  std::vector<std::pair<std::string, std::shared_ptr<Plugin>>> made;  // id, object

  template <class Kind>
  std::vector<std::shared_ptr<Kind>> all(const std::string& kind, Strategies* named = nullptr) {
    std::vector<std::shared_ptr<Kind>> list;
    for (const ChosenPlugin& plugin : run.chosen) {
      if (plugin.kind() != kind || !plugin.selection.enabled) continue;
      // Created as its kind's own class: sections of the strategy kinds share one class.
      const auto object = std::dynamic_pointer_cast<Kind>(
          registry.create_plugin(kind, plugin.name(), plugin.options.get(), *run.services));
      if (!object) throw fail(ErrorCode::plugin, plugin.id(), ": create gave an object of another kind");
      made.emplace_back(plugin.id(), object);
      list.push_back(object);
      if constexpr (std::is_base_of_v<Strategy, Kind>)
        if (named) named->push_back({plugin.id(), object});
    }
    return list;
  }
  template <class Kind>
  std::shared_ptr<Kind> one() {
    const auto list = all<Kind>(Kind::kKind);
    return list.empty() ? nullptr : list.front();
  }
};

// Null stays null.
template <class Named, class Kind>
std::shared_ptr<Kind> named(const Composition& run, std::shared_ptr<Kind> plugin) {
  if (!plugin) return nullptr;
  return std::make_shared<Named>(run.id_of(Kind::kKind), std::move(plugin));
}

void create_plugins(Factory& factory, Composition& run) {
  run.model = factory.one<Model>();
  run.schedule = named<NamedSchedule>(run, factory.one<Schedule>());
  const auto owners = factory.all<DataParallel>(DataParallel::kKind, &run.strategies);
  run.data_parallel = owners.empty() ? std::make_shared<PlainStorage>(*run.services) : owners.front();
  if (owners.empty()) {
    run.strategies.push_back({"the runtime's plain storage", run.data_parallel});
    factory.made.emplace_back(run.strategies.back().id, run.data_parallel);
  }
  const auto recomputes = factory.all<Recompute>(Recompute::kKind, &run.strategies);
  run.recompute = recomputes.empty() ? nullptr : recomputes.front();
  for (const char* kind : kMiddleStrategies) factory.all<Strategy>(kind, &run.strategies);
  const auto precisions = factory.all<Precision>(Precision::kKind, &run.strategies);
  run.precision = precisions.empty() ? nullptr : precisions.front();
  factory.all<Strategy>(Strategy::kKind, &run.strategies);
  run.attention = factory.one<Attention>();
  run.optimizer = factory.one<Optimizer>();
  run.lr_schedule = factory.one<LrSchedule>();
  run.dataset = factory.one<Dataset>();
  run.communicator = named<NamedCommunicator>(run, factory.one<Communicator>());
  for (size_t at = factory.made.size(); const auto& monitor : factory.all<Monitor>(Monitor::kKind))
    run.monitors.push_back({factory.made[at++].first, monitor});
}

// The first plugin that refuses the run and has another one behind it in its order of preference; empty: none.
std::string replaceable(const PlanContext& context, const std::vector<ChosenPlugin>& chosen) {
  for (const auto& refusal : context.refusals())
    for (const ChosenPlugin& plugin : chosen)
      if (plugin.id() == refusal.by && !plugin.fallbacks.empty()) return refusal.by;
  return {};
}

void replace(std::vector<ChosenPlugin>& chosen, const std::string& id) {
  for (ChosenPlugin& plugin : chosen) {
    if (plugin.id() != id) continue;
    ChosenPlugin next = plugin.fallbacks.front();
    next.fallbacks.assign(plugin.fallbacks.begin() + 1, plugin.fallbacks.end());
    plugin = std::move(next);
    return;
  }
}

PlanContext negotiate(const Factory& factory, const Composition& run) {
  PlanContext context(run.facts, run.run);
  for (const auto& [id, plugin] : factory.made) {
    context.speaker(id);
    plugin_call({id, "plan"}, [&] { plugin->plan(context); });
  }
  return context;
}

Position place_of(const Composition& run, const std::string& id) {
  if (id == "mesh_order") return run.settings.mesh_order_where;
  for (const ChosenPlugin& plugin : run.chosen)
    if (plugin.id() == id) return plugin.selection.where;
  return {};
}

void check_data(Composition& run, Problems& problems) {
  const std::string id = run.id_of(Dataset::kKind);
  const Position where = place_of(run, id);
  const PluginCall open{.id = id, .hook = "open", .keeps_errors = true};
  try {
    run.data = plugin_call(open, [&] { return run.dataset->open(run.run, run.facts); });
    if (run.data.seq_length < 1)
      throw fail(ErrorCode::plugin, id, ": open returned a seq_length of ", run.data.seq_length, "; wanted 1 or more");
  } catch (const Error& e) {
    const std::string text = e.what();
    const bool named = text.rfind(id, 0) == 0 || text.rfind("in " + id, 0) == 0;
    return problems.add(where, named ? text : id + ": " + text, e.code());
  }
  if (run.data.seq_length > run.facts.max_position_embeddings)
    problems.add(where,
                 concat("the dataset's sequences of ", run.data.seq_length, " tokens are longer than the model's ",
                        "max_position_embeddings ", run.facts.max_position_embeddings,
                        ". Set dataset.params.seq_length to that or less, or enlarge the model's"));
  if (run.data.steps >= 0 && run.settings.train_steps > run.data.steps)
    problems.add(where, concat("train_steps is ", run.settings.train_steps, ", the dataset has ", run.data.steps,
                               " steps. Set train_steps to ", run.data.steps, " or less"));
  if (run.settings.eval_interval > 0 && !run.data.validation)
    problems.add(where,
                 "eval_interval is set, but the dataset has no validation part. Set it to 0 or use one that has");
  run.run.seq_length = run.data.seq_length;
}

void prepare_facts(Composition& run, const RankSetup& setup, Purpose purpose) {
  settle_dtypes(run);
  const std::string model = run.id_of(Model::kKind);
  run.facts = plugin_call({model, "facts"}, [&] { return run.model->facts(); });
  run.run.world_size = setup.environment.world_size;
  run.run.device = run.settings.device;
  run.run.train_batch_size = run.settings.train_batch_size.value_or(0);
  run.run.micro_batch_size = run.settings.micro_batch_size.value_or(0);
  run.run.accumulation = run.settings.accumulation.value_or(0);
  run.run.reduce_every = run.settings.reduce_every;
  run.run.train_steps = run.settings.train_steps;
  run.run.training = purpose == Purpose::train;
  run.run.seed = run.settings.seed;
}

std::unique_ptr<Composition> new_composition(const RunSettings& settings, const std::vector<ChosenPlugin>& chosen,
                                             const RankSetup& setup) {
  auto run = std::make_unique<Composition>();
  run->settings = settings;
  run->chosen = chosen;
  run->log = setup.log;
  run->store = setup.store;
  const RankEnvironment& env = setup.environment;
  work_rank() = {env.rank, env.world_size, setup.log};
  run->services = std::unique_ptr<Services>(new Services{*setup.log,
                                                         *setup.store,
                                                         env.rank,
                                                         env.world_size,
                                                         env.local_rank,
                                                         env.local_size,
                                                         device_of(settings.device, env.local_rank),
                                                         static_cast<uint64_t>(settings.seed),
                                                         {},
                                                         nullptr});
  return run;
}

void solve_batches(Composition& run, Problems& problems) {
  run.batch = solve_batch(run.settings, run.mesh_plan.batch_ranks(), problems);
  constexpr int64_t most = std::numeric_limits<decltype(Instr::micro)>::max();
  if (run.batch.accumulation > most)
    problems.add(run.settings.batch_where,
                 concat("a step of ", run.batch.accumulation, " micro-batches per rank is too long (", most,
                        " at most)\n   use a larger train_micro_batch_size_per_gpu or a smaller train_batch_size"));
  run.run.train_batch_size = run.batch.train_batch_size;
  run.run.micro_batch_size = run.batch.micro_batch_size;
  run.run.accumulation = run.batch.accumulation;
}

// Plugins whose work is part of a step on the device. A single rank's groups move nothing.
bool acts_in_a_step(const std::string& id, int64_t world_size) {
  const std::string kind = id.substr(0, id.find('/'));
  if (kind == Communicator::kKind) return world_size > 1;
  for (const char* idle : {Dataset::kKind, Monitor::kKind, LrSchedule::kKind})
    if (kind == idle) return false;
  return true;
}

void decide_capture(const Factory& factory, Composition& run, const PlanContext& context, Problems& problems) {
  CaptureFacts facts;
  facts.wanted = capture_wanted(run.settings);
  facts.device = run.run.device, facts.training = run.run.training;
  facts.hidden_dropout = run.facts.hidden_dropout, facts.attention_dropout = run.facts.attention_dropout;
  for (const auto& [id, plugin] : factory.made)
    if (acts_in_a_step(id, run.run.world_size)) facts.acting.push_back(id);
  facts.capturables = context.capturables();
  run.capture = choose_capture(facts, run.settings.capture.where, problems);
}

// One round of negotiation into the mesh, with all problems; empty, or the id of a plugin to be replaced.
std::string negotiate_mesh(const Factory& factory, Composition& run, const std::vector<ChosenPlugin>& chosen,
                           Problems& problems) {
  const PlanContext context = negotiate(factory, run);
  if (const std::string refused = replaceable(context, chosen); !refused.empty()) {
    for (const auto& refusal : context.refusals())
      if (refusal.by == refused) run.log->warning(refused + " is not used: " + refusal.text);
    return refused;
  }
  run.mesh_plan = solve_mesh(
      context, run.settings.mesh_order, [&](const std::string& id) { return place_of(run, id); }, problems,
      [&](const std::string& ability) { return who_would_offer(ability, factory.registry, run); },
      [&](const std::string& kind) { return run.id_of(kind); });
  run.memories = context.memories();
  run.traffics = context.traffics();
  run.updated_elements = context.updated_elements();
  decide_capture(factory, run, context, problems);
  run.notes.clear();
  for (const auto& cost : context.costs()) run.notes.push_back(concat("cost: ", cost.by, ": ", cost.text));
  for (const auto& note : context.no_effects()) run.notes.push_back(concat("no effect: ", note.by, ": ", note.text));
  return {};
}

// Where a plugin's word about the model's chain does not fit, the file's line is told as for every other problem.
void place(Composition& run, Problems& problems) {
  run.mesh = std::make_unique<Mesh>(run.mesh_plan.axes, run.services->rank, run.services->world_size, run.communicator);
  run.services->mesh = run.mesh.get();
  const std::vector<UnitPtr> chain = build_chain(run);
  const std::string schedule = run.id_of(Schedule::kKind);
  try {
    place_chain(run, chain);
  } catch (const Error& e) {
    const std::string text = e.what();
    problems.add(place_of(run, schedule), text.rfind("in ", 0) == 0 ? text : schedule + ": " + text, e.code());
  }
}

// Plugins see the run several times: to find the mesh, from which batch sizes and data follow; with those known;
// and once the model is built, for their figures.
std::string settle(const Factory& factory, Composition& run, const std::vector<ChosenPlugin>& chosen, Purpose purpose) {
  Problems problems;
  count_ranks(negotiate(factory, run), run.run);
  std::string refused = negotiate_mesh(factory, run, chosen, problems);
  if (!refused.empty()) return refused;
  if (purpose == Purpose::train) {
    solve_batches(run, problems);
    check_data(run, problems);
    problems.throw_if_any();
    refused = negotiate_mesh(factory, run, chosen, problems);
  }
  problems.throw_if_any();
  if (!refused.empty()) return refused;
  place(run, problems);
  problems.throw_if_any();
  refused = negotiate_mesh(factory, run, chosen, problems);
  problems.throw_if_any();
  return refused;
}

}  // namespace

std::unique_ptr<Composition> plan_run(const RunSettings& settings, std::vector<ChosenPlugin> chosen,
                                      const Registry& registry, const RankSetup& setup, Purpose purpose) {
  while (true) {
    auto run = new_composition(settings, chosen, setup);
    Factory factory{registry, *run, {}};
    create_plugins(factory, *run);
    prepare_facts(*run, setup, purpose);
    const std::string refused = settle(factory, *run, chosen, purpose);
    if (refused.empty()) return run;
    replace(chosen, refused);
  }
}

}  // namespace drivetrain
