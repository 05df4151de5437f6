// Nothing big is allocated here and no rank waits for another.
#include "plan/prepare_run.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <limits>
#include <optional>

#include <drivetrain/toolkit/not_recorded.h>
#include <drivetrain/toolkit/recorded_when_asked.h>

#include "device/open_device.h"
#include "plan/choose_dtypes.h"
#include "plan/create_plugins.h"
#include "plan/param_groups.h"
#include "plan/place_model.h"
#include "plan/plugins_that_offer.h"
#include "plan/stage_memory.h"
#include "plugin_calls/plugin_call.h"

namespace drivetrain {
namespace {

constexpr const char* kProductsIn = "products.";  // how products of blocks are computed, as abilities

// A name only: a plan is made on machines without the device too.
at::Device device_of(const std::string& name, const RankEnvironment& env) {
  if (name == "cpu") return at::Device(at::kCPU);
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device_index(env.local_rank, env.local_size)));
}

// What errors of a device say of the step.
std::function<std::string()> place_in(const std::weak_ptr<FlightRecord>& record) {
  return [record]() -> std::string {
    const auto flight = record.lock();
    if (!flight) return "";
    const FlightPlace at = flight->place();
    if (at.step == 0) return "before the first step";
    return concat("step ", at.step, ": ", at.doing == FlightDoing::outside ? "between two steps" : name_of(at.doing),
                  at.micro >= 0 ? concat(", micro-batch ", at.micro) : "");
  };
}

// Who negotiates, and where further plugins could come from.
struct Parties {
  const Registry& registry;
  NamedPlugins plugins;
};

// The first plugin that refuses the run and has another one behind it in its order of preference; empty: none.
std::string replaceable(const PlanRecord& context, const std::vector<ChosenPlugin>& chosen) {
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

PlanRecord negotiate(const Parties& parties, const PreparedRun& run) {
  PlanRecord context(run.plan.model, run.plan.run);
  for (const auto& [id, plugin] : parties.plugins) {
    context.set_plugin(id);
    plugin_call({id, "plan"}, [&] { plugin->plan(context); });
  }
  return context;
}

Position place_of(const PreparedRun& run, const std::string& id) {
  if (id == "mesh_order") return run.plan.settings.mesh_order_where;
  for (const ChosenPlugin& plugin : run.chosen)
    if (plugin.id() == id) return plugin.selection.where;
  return {};
}

void check_data(PreparedRun& run, Problems& problems) {
  RunPlan& plan = run.plan;
  const std::string id = plan.id_of(Dataset::kKind);
  const Position where = place_of(run, id);
  const PluginCall open{.id = id, .hook = "open", .keeps_errors = true};
  try {
    plan.data = plugin_call(open, [&] { return run.plugins.dataset->open(plan.run, plan.model); });
    if (plan.data.seq_length < 1)
      throw fail(ErrorCode::plugin, id, ": open returned a seq_length of ", plan.data.seq_length, "; wanted 1 or more");
  } catch (const Error& e) {
    const std::string text = e.what();
    const bool named = text.rfind(id, 0) == 0 || text.rfind("in " + id, 0) == 0;
    return problems.add(where, named ? text : id + ": " + text, e.code());
  }
  if (plan.data.seq_length > plan.model.max_position_embeddings)
    problems.add(where,
                 concat("the dataset's sequences of ", plan.data.seq_length, " tokens are longer than the model's ",
                        "max_position_embeddings ", plan.model.max_position_embeddings,
                        ". Set dataset.params.seq_length to that or less, or enlarge the model's"));
  if (plan.data.steps >= 0 && plan.settings.train_steps > plan.data.steps)
    problems.add(where, plan.data.steps == 0
                            ? "the dataset has no data for a single step of train_batch_size sequences. Use more data, "
                              "or a smaller train_batch_size"
                            : concat("train_steps is ", plan.settings.train_steps, ", the dataset has ",
                                     plan.data.steps, " steps. Set train_steps to ", plan.data.steps, " or less"));
  if (plan.settings.eval_interval > 0 && !plan.data.validation)
    problems.add(where,
                 "eval_interval is set, but the dataset has no validation part. Set it to 0 or use one that has");
  plan.run.seq_length = plan.data.seq_length;
  plan.run.documents = plan.data.documents;
}

// Every set's problems, with the place of the set.
void open_evaluations(PreparedRun& run, Problems& problems) {
  for (NamedEvaluation& set : run.plugins.evaluations) {
    Position where;
    for (const ChosenPlugin& plugin : run.chosen)
      if (plugin.selection.set == set.name) where = plugin.selection.where;
    try {
      open_evaluation(set, run.plan.run, run.plan.model);
    } catch (const Error& e) {
      problems.add(where, concat("eval.sets.", set.name, ": ", e.what()), e.code());
    }
  }
}

void prepare_facts(PreparedRun& run, const Registry& registry, const RankSetup& setup, Purpose purpose) {
  RunPlan& plan = run.plan;
  choose_dtypes(run, registry);
  const std::string model = plan.id_of(Model::kKind);
  plan.model_alone = plugin_call({model, "facts"}, [&] { return run.plugins.model->facts(); });
  plan.model = plan.model_alone;
  for (auto it = run.plugins.strategies.rbegin(); it != run.plugins.strategies.rend(); ++it)  // innermost first
    plugin_call({it->id, "change_facts"}, [&] { it->strategy->change_facts(plan.model); });
  plan.run.world_size = setup.environment.world_size;
  plan.run.device = plan.settings.device;
  const auto tell = [](Fact<int64_t>& fact, const std::optional<int64_t>& given) {
    if (given) fact = *given;
  };
  tell(plan.run.train_batch_size, plan.settings.train_batch_size);
  tell(plan.run.micro_batch_size, plan.settings.micro_batch_size);
  tell(plan.run.accumulation, plan.settings.accumulation);
  plan.run.reduce_every = plan.settings.reduce_every;
  plan.run.train_steps = plan.settings.train_steps;
  plan.run.training = purpose == Purpose::train;
  plan.run.seed = plan.settings.seed;
}

std::unique_ptr<PreparedRun> new_run(const RunSettings& settings, const std::vector<ChosenPlugin>& chosen,
                                     const RankSetup& setup) {
  auto run = std::make_unique<PreparedRun>();
  run->plan.settings = settings;
  run->plan.rank = setup.environment.rank;
  for (const ChosenPlugin& plugin : chosen)
    run->plan.plugins.push_back({plugin.kind(), plugin.name(), plugin.selection.enabled});
  run->chosen = chosen;
  run->log = setup.log;
  run->flight = setup.flight;
  run->store = setup.store;
  const RankEnvironment& env = setup.environment;
  const at::Device device = device_of(settings.device, env);
  work_rank() = {env.rank, env.world_size, setup.log, device.is_cuda() ? device.index() : -1, place_in(setup.flight)};
  run->services = std::unique_ptr<Services>(new Services{*setup.log,
                                                         *setup.store,
                                                         env.rank,
                                                         env.world_size,
                                                         env.local_rank,
                                                         env.local_size,
                                                         device,
                                                         static_cast<uint64_t>(settings.seed),
                                                         {},
                                                         nullptr,
                                                         nullptr});
  return run;
}

void solve_batches(RunPlan& plan, Problems& problems) {
  plan.batch = solve_batch(plan.settings, plan.mesh.batch_ranks(), problems);
  constexpr int64_t most = std::numeric_limits<decltype(Instr::micro)>::max();
  if (plan.batch.accumulation > most)
    problems.add(plan.settings.batch_where,
                 concat("a step of ", plan.batch.accumulation, " micro-batches per rank is too long (", most,
                        " at most)\n   use a larger train_micro_batch_size_per_gpu or a smaller train_batch_size"));
  plan.run.train_batch_size = plan.batch.train_batch_size;
  plan.run.micro_batch_size = plan.batch.micro_batch_size;
  plan.run.accumulation = plan.batch.accumulation;
}

// Plugins whose work is part of a step on the device. A single rank's groups move nothing.
bool acts_in_a_step(const std::string& id, int64_t world_size) {
  const std::string kind = id.substr(0, id.find('/'));
  if (kind == Communicator::kKind) return world_size > 1;
  for (const char* idle : {Dataset::kKind, Monitor::kKind, LrSchedule::kKind, CheckpointStore::kKind,
                           CheckpointPolicy::kKind, Evaluation::kKind})
    if (kind == idle) return false;
  return true;
}

void decide_capture(const Parties& parties, PreparedRun& run, const PlanRecord& context, Problems& problems) {
  RunPlan& plan = run.plan;
  CaptureFacts facts;
  facts.wanted = capture_wanted(plan.settings);
  facts.device = plan.run.device, facts.training = plan.run.training;
  facts.hidden_dropout = plan.model.hidden_dropout, facts.attention_dropout = plan.model.attention_dropout;
  facts.documents = plan.data.documents;
  facts.micro_batches = plan.batch.accumulation;
  for (const auto& [id, plugin] : parties.plugins)
    if (acts_in_a_step(id, plan.run.world_size)) facts.acting.push_back(id);
  facts.capturables = context.capturables();
  const std::string why_not = toolkit::kNotRecorded;
  for (const auto& offer : context.offers()) {
    if (offer.text == toolkit::kRecordedWhenAsked) facts.when_asked.push_back(offer.by);
    if (offer.text.starts_with(why_not)) facts.in_the_way.emplace(offer.by, offer.text.substr(why_not.size()));
  }
  plan.capture = choose_capture(facts, plan.settings.capture.where, problems);
  run.services->recorded = plan.capture.on;
}

// One round of negotiation into the mesh, with all problems; empty, or the id of a plugin to be replaced. `said`:
// what they said.
std::string negotiate_mesh(const Parties& parties, PreparedRun& run, const std::vector<ChosenPlugin>& chosen,
                           Problems& problems, std::optional<PlanRecord>& said) {
  RunPlan& plan = run.plan;
  const PlanRecord& context = said.emplace(negotiate(parties, run));
  if (const std::string refused = replaceable(context, chosen); !refused.empty()) {
    for (const auto& refusal : context.refusals())
      if (refusal.by == refused) run.log->warning(refused + " is not used: " + refusal.text);
    return refused;
  }
  plan.mesh = solve_mesh(
      context, plan.settings.mesh_order, [&](const std::string& id) { return place_of(run, id); }, problems,
      [&](const std::string& ability) { return plugins_that_offer(ability, parties.registry, run); },
      [&](const std::string& kind) { return plan.id_of(kind); });
  plan.traffics = context.traffics();
  plan.copies = context.copies();
  plan.dtypes.products.clear();
  for (const auto& offer : context.offers())
    if (offer.text.starts_with(kProductsIn))
      plan.dtypes.products += offer.text.substr(std::string(kProductsIn).size() - 1);
  plan.updated_elements = context.updated_elements(), plan.update = context.update();
  decide_capture(parties, run, context, problems);
  plan.notes.clear();
  for (const auto& cost : context.costs()) plan.notes.push_back(concat("cost: ", cost.by, ": ", cost.text));
  for (const auto& note : context.no_effects()) plan.notes.push_back(concat("no effect: ", note.by, ": ", note.text));
  return {};
}

// Where a plugin's word about the model's chain does not fit, the file's line is told as for every other problem.
template <class Inside>
void with_place(const PreparedRun& run, const std::string& id, Problems& problems, const Inside& inside) {
  try {
    inside();
  } catch (const Error& e) {
    const std::string text = e.what();
    problems.add(place_of(run, id), text.rfind("in ", 0) == 0 ? text : id + ": " + text, e.code());
  }
}

// Returns the whole model's chain.
std::vector<UnitPtr> place(PreparedRun& run, Problems& problems) {
  run.mesh = std::make_unique<Mesh>(run.plan.mesh.axes, run.services->rank, run.services->world_size,
                                    run.plugins.communicator, run.services->device);
  run.services->mesh = run.mesh.get();
  std::vector<UnitPtr> chain = build_chain(run);
  apply_param_groups(run, problems);
  with_place(run, run.plan.id_of(Schedule::kKind), problems, [&] { place_chain(run, chain); });
  if (!run.plugins.recompute || !problems.empty()) return chain;
  const std::string policy = run.plan.id_of(Recompute::kKind);
  with_place(run, policy, problems, [&] {
    plugin_call({policy, "choose"}, [&] { run.plugins.recompute->choose(run.units); });
  });
  return chain;
}

// Plugins see the run several times (plugin.h): to find the mesh, from which batch sizes and data follow; with those
// known; and once the model is built, for their figures.
std::string negotiate_all(const Parties& parties, PreparedRun& run, const std::vector<ChosenPlugin>& chosen,
                          Purpose purpose) {
  Problems problems;
  std::optional<PlanRecord> before, last;
  count_ranks(negotiate(parties, run), run.plan.run);
  std::string refused = negotiate_mesh(parties, run, chosen, problems, before);
  if (!refused.empty()) return refused;
  if (purpose == Purpose::train) {
    solve_batches(run.plan, problems);
    check_data(run, problems);
    if (problems.empty()) open_evaluations(run, problems);
    problems.throw_if_any();
    refused = negotiate_mesh(parties, run, chosen, problems, before);
  }
  problems.throw_if_any();
  if (!refused.empty()) return refused;
  const std::vector<UnitPtr> chain = place(run, problems);
  problems.throw_if_any();
  refused = negotiate_mesh(parties, run, chosen, problems, last);
  problems.throw_if_any();
  if (!refused.empty()) return refused;
  check_same_declarations(*before, *last);
  plan_stage_memories(run, parties.plugins, chain);
  return refused;
}

}  // namespace

std::unique_ptr<PreparedRun> prepare_run(const RunSettings& settings, std::vector<ChosenPlugin> chosen,
                                         const Registry& registry, const RankSetup& setup, Purpose purpose) {
  while (true) {
    auto run = new_run(settings, chosen, setup);
    const Parties parties{registry, create_plugins(*run, registry)};
    prepare_facts(*run, registry, setup, purpose);
    const std::string refused = negotiate_all(parties, *run, chosen, purpose);
    if (refused.empty()) return run;
    replace(chosen, refused);
  }
}

}  // namespace drivetrain
