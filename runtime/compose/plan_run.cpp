// Creates the chosen plugins and lets them negotiate. Nothing big is allocated here and no rank waits for another.
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "compose/composition.h"
#include "compose/plain_storage.h"

namespace drivetrain {
namespace {

// The onion: kinds whose hooks nest, outermost first.
constexpr const char* kNesting[] = {"data_parallel", "recompute", "context_parallel", "tensor_parallel", "precision", "strategy"};

at::Device device_of(const std::string& name) {
  if (name == "cuda")
    throw Error(ErrorCode::config, "\"device\": \"cuda\" is not in this version. Use \"device\": \"cpu\"");
  return at::Device(at::kCPU);
}

// Creates every chosen plugin of `Kind` and remembers it for the negotiation.
struct Factory {
  Registry& registry;
  Composition& run;
  std::vector<std::pair<std::string, std::shared_ptr<Plugin>>> made;  // id, object

  template <class Kind>
  std::vector<std::pair<std::string, std::shared_ptr<Kind>>> all(const std::string& kind) {
    std::vector<std::pair<std::string, std::shared_ptr<Kind>>> list;
    for (const ChosenPlugin& plugin : run.chosen) {
      if (plugin.kind != kind) continue;
      auto object = registry.create<Kind>(kind, plugin.name, plugin.options.get(), *run.services);
      made.emplace_back(plugin.id(), object);
      list.emplace_back(plugin.id(), std::move(object));
    }
    return list;
  }
  template <class Kind>
  std::shared_ptr<Kind> one(const std::string& kind) {
    auto list = all<Kind>(kind);
    return list.empty() ? nullptr : list.front().second;
  }
};

void create_plugins(Factory& factory, Composition& run) {
  run.model = factory.one<Model>(Model::kKind);
  run.schedule = factory.one<Schedule>(Schedule::kKind);
  for (const char* kind : kNesting) {
    if (std::string(kind) == DataParallel::kKind) {
      run.data_parallel = factory.one<DataParallel>(kind);
      if (!run.data_parallel) run.data_parallel = std::make_shared<PlainStorage>(*run.services);
      run.strategies.push_back({factory.made.back().first.rfind("data_parallel/", 0) == 0 ? factory.made.back().first
                                                                                         : "the runtime's own storage",
                                run.data_parallel});
      continue;
    }
    for (auto& [id, strategy] : factory.all<Strategy>(kind)) run.strategies.push_back({id, strategy});
  }
  run.attention = factory.one<Attention>(Attention::kKind);
  run.optimizer = factory.one<Optimizer>(Optimizer::kKind);
  run.lr_schedule = factory.one<LrSchedule>(LrSchedule::kKind);
  run.dataset = factory.one<Dataset>(Dataset::kKind);
  run.communicator = factory.one<Communicator>(Communicator::kKind);
  for (auto& [id, monitor] : factory.all<Monitor>(Monitor::kKind)) run.monitors.push_back(monitor);
}

void negotiate(const Factory& factory, Composition& run, Problems& problems) {
  PlanContext context(run.facts, run.run);
  for (const auto& [id, plugin] : factory.made) {
    context.speaker(id);
    plugin->plan(context);
  }
  run.mesh_plan = solve_mesh(context, problems);
  run.memories = context.memories();
  for (const auto& cost : context.costs()) run.notes.push_back(cost.by + ": " + cost.text);
}

void check_data(Composition& run, Problems& problems) {
  try {
    run.data = run.dataset->open(run.run, run.facts);
  } catch (const Error& e) {
    problems.add({}, e.what(), e.code());
    return;
  }
  if (run.data.seq_length > run.facts.max_position_embeddings)
    problems.add({}, concat("dataset: seq_length ", run.data.seq_length, " is longer than the model's max_position_embeddings ",
                            run.facts.max_position_embeddings, ". Shorten one or enlarge the other"));
  if (run.data.steps >= 0 && run.settings.train_steps > run.data.steps)
    problems.add({}, concat("train_steps is ", run.settings.train_steps, ", the dataset has ", run.data.steps,
                            " steps. Set train_steps to ", run.data.steps, " or less"));
  if (run.settings.eval_interval > 0 && !run.data.validation)
    problems.add({}, "eval_interval is set, but the dataset has no validation part. Set it to 0 or use one that has");
  run.run.seq_length = run.data.seq_length;
}

// The sequence length the model should check against is only known once the dataset is open; both before `plan`.
void prepare_facts(Composition& run, const RankSetup& setup, bool training) {
  run.facts = run.model->facts();
  run.run.world_size = setup.environment.world_size;
  run.run.device = run.settings.device;
  run.run.train_batch_size = run.settings.train_batch_size.value_or(0);
  run.run.micro_batch_size = run.settings.micro_batch_size.value_or(0);
  run.run.accumulation = run.settings.accumulation.value_or(0);
  run.run.train_steps = run.settings.train_steps;
  run.run.training = training;
  run.run.seed = run.settings.seed;
}

}  // namespace

GroupPtr Composition::gradient_group() const {
  std::vector<std::string> names;
  for (const Axis& axis : mesh->axes())
    if (axis.joins_gradients) names.push_back(axis.name);
  return mesh->group(names);
}

int64_t Composition::batch_rank() const {
  int64_t index = 0, stride = 1;
  for (const Axis& axis : mesh->axes()) {
    const auto& names = mesh_plan.batch_axes;
    if (std::find(names.begin(), names.end(), axis.name) == names.end()) continue;
    index += axis.index * stride;
    stride *= axis.size;
  }
  return index;
}

std::unique_ptr<Composition> plan_run(RunSettings settings, std::vector<ChosenPlugin> chosen, Registry& registry,
                                      const RankSetup& setup, bool training) {
  auto run = std::make_unique<Composition>();
  run->settings = std::move(settings);
  run->chosen = std::move(chosen);
  run->log = setup.log;
  run->store = setup.store;
  const RankEnvironment& env = setup.environment;
  run->services = std::unique_ptr<Services>(new Services{*setup.log, *setup.store, env.rank, env.world_size, env.local_rank,
                                                         env.local_size, device_of(run->settings.device),
                                                         static_cast<uint64_t>(run->settings.seed), nullptr});
  Problems problems;
  Factory factory{registry, *run, {}};
  create_plugins(factory, *run);
  prepare_facts(*run, setup, training);
  negotiate(factory, *run, problems);
  if (training) {
    run->batch = solve_batch(run->settings, run->mesh_plan.batch_ranks(), problems);
    run->run.train_batch_size = run->batch.train_batch_size;
    run->run.micro_batch_size = run->batch.micro_batch_size;
    run->run.accumulation = run->batch.accumulation;
    check_data(*run, problems);
  }
  problems.throw_if_any();
  return run;
}

}  // namespace drivetrain
