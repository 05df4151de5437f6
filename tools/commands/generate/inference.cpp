#include "generate/inference.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "generate/run_strategies.h"
#include "generate/text_tokens.h"
#include "log/log_console.h"
#include "memory/cpu_allocator.h"
#include "plan/prepare_run.h"
#include "run/run.h"
#include "shared/math_threads.h"
#include "step/evaluator.h"
#include "step/executor.h"
#include "train/base_weights.h"
#include "train/strategy_state.h"

namespace drivetrain {
namespace {

// Values in 16 bits, by the precision's section of a config; empty: float32.
const char* section_of_dtype(const std::string& dtype) {
  return dtype == "bf16" ? "bf16" : dtype == "f16" ? "fp16" : "";
}

// A model may need what a run of it chose: windows, softcaps. Null: the default serves.
Value attention_section(const std::string& folder, const InferenceSettings& on) {
  if (!on.attention.empty()) return on.attention;
  const Value config = run_config(folder);
  const Value* const of_run = config.find("attention");
  return of_run ? *of_run : Value();
}

std::unique_ptr<Run> built(PreparedInference prepared) {
  auto run = std::make_unique<Run>(std::move(*prepared.run));
  const ModelSource& source = prepared.source;
  run->values_from = source.weights, run->values_tag = source.tag;
  run->strategies_from = source.strategies;
  build_run(*run);
  if (prepared.is_alone) warn_of_left_state(run->weights_from, *run->log);
  if (!source.strategies.empty()) check_bases(*run, source.strategies);
  load_strategy_state(*run, prepared.folder);
  return run;
}

// What a folder is planned with.
struct Wanted {
  const std::string& folder;
  const int64_t seed;
  const Registry& registry;
  const InferenceSettings& on;

  // `strategies`: the section; null or empty: the default ones.
  std::unique_ptr<PreparedRun> plan(const Value& model, const Value& strategies, std::shared_ptr<Log> log) const {
    RankSetup setup;
    setup.log = std::move(log);
    setup.store = make_local_store();
    Problems problems;
    Value config = Value::object();
    config.set("model", model);
    config.set("seed", seed);
    config.set("device", on.device);
    if (const Value attention = attention_section(folder, on); !attention.is_null()) config.set("attention", attention);
    if (strategies.is_array() && !strategies.items().empty()) config.set(Strategy::kKind, strategies);
    if (const std::string section = section_of_dtype(on.dtype); !section.empty())
      config.set(section, Value::Object{{"enabled", true}});
    config.set("train_steps", 1);  // every run's settings want some
    const RunSettings settings = read_run_settings(config, "generate", problems);
    std::vector<ChosenPlugin> chosen = choose_plugins(config, registry, on.device, problems, Purpose::generate);
    problems.throw_if_any();
    return prepare_run(settings, std::move(chosen), registry, setup, Purpose::generate);
  }
};

}  // namespace

PreparedInference prepare_inference(const std::string& folder, int64_t seed, const Registry& registry,
                                    std::shared_ptr<Log> log, const InferenceSettings& on) {
  const Wanted wanted{folder, seed, registry, on};
  const std::shared_ptr<Log> quiet = make_console_log({.level = LogLevel::error});
  ModelSource source = model_source(folder, registry);
  const Value recorded = recorded_strategies(folder);
  Value strategies = recorded;
  if (!recorded.is_null()) {
    std::unique_ptr<PreparedRun> planned;
    try {
      planned = wanted.plan(source.section, recorded, quiet);
      strategies = acting_strategies(recorded, *planned, registry, source);
    } catch (const Error& e) {
      const std::string chosen = chosen_strategies(recorded, registry);
      if (chosen.empty()) throw;
      throw fail(e.code(), e.what(), "\n   the run had ", chosen, ", without which its model may be another",
                 e.code() == ErrorCode::plugin ? ": --plugin-path FOLDER for those of your own; " : "; ", "give ",
                 (std::filesystem::path(folder) / "final").string(), " for the weights alone");
    }
    if (strategies != recorded && !planned->added_params.empty())
      planned = wanted.plan(source.section, strategies, quiet);
    source = source_with_strategies(source, folder, *planned);
  }
  PreparedInference prepared{wanted.plan(source.section, strategies, std::move(log)), source, folder,
                             recorded.is_null()};
  say_which_weights(source, folder, strategies, *prepared.run);
  for (const ParamPtr& param : prepared.run->model_params) param->trainable = false;  // no masters, no gradients
  return prepared;
}

struct Inference::Impl {
  Impl(std::unique_ptr<Run> own, const Registry& all)
      : registry(all),
        run(std::move(own)),
        state(run->services->seed, &run->units, run->plugins.recompute.get(), {}, run->plan.id_of(Recompute::kKind)),
        executor(executor_parts(*run), state, 0),
        loading(peak()) {
    make_math_ready();
    if (DeviceRuntime* const device = run->device_runtime()) device->reset_peak(run->services->device);
    reset_cpu_peak();
  }

  double peak() const {
    DeviceRuntime* const device = run->device_runtime();
    return static_cast<double>(device ? device->memory(run->services->device).peak_allocated
                                      : cpu_memory().peak_in_use);
  }

  at::Tensor pass(Batch batch) {
    const at::Device device = run->services->device;
    batch.tokens_BS = batch.tokens_BS.to(device);
    if (batch.position_ids_BS.defined()) batch.position_ids_BS = batch.position_ids_BS.to(device);
    executor.begin(Pass::forward_only, 1, Mode::generate);
    executor.run([&](int64_t) { return batch; });
    return executor.logits();
  }

  const Registry& registry;
  std::unique_ptr<Run> run;
  StepState state;
  Executor executor;
  const double loading;  // bytes at the peak of loading
};

Inference::Inference(const std::string& folder, int64_t seed, const Registry& registry, std::shared_ptr<Log> log,
                     const InferenceSettings& on)
    : Inference(prepare_inference(folder, seed, registry, std::move(log), on), registry) {}

Inference::Inference(PreparedInference prepared, const Registry& registry)
    : impl_(std::make_unique<Impl>(built(std::move(prepared)), registry)) {}

Inference::~Inference() = default;

const Model& Inference::model() const { return *impl_->run->plugins.model; }
uint64_t Inference::seed() const { return impl_->run->services->seed; }

Inference::Evaluated Inference::evaluate(const std::string& name, const ChosenPlugin& set,
                                         std::optional<int64_t> seq_length, int64_t batch_size) {
  Run& run = *impl_->run;
  NamedEvaluation named{name, set.id(), 0,
                        impl_->registry.create<Evaluation>(set.name(), set.options.get(), *run.services)};
  RunFacts facts = run.plan.run;
  if (seq_length) facts.seq_length = std::min(*seq_length, run.plan.model.max_position_embeddings);
  open_evaluation(named, facts, run.plan.model);
  EvaluatorParts parts = evaluator_parts(run);
  parts.micro_batch_size = batch_size;
  Evaluator evaluator(parts, named, impl_->state);
  const Value figures = evaluator.run(1);
  if (figures.is_null())
    throw fail(ErrorCode::io, set.id(), ": no label of its ", named.facts.rows, " rows counts: every one is -100\n   ",
               "there is nothing to evaluate; name another part of the data");
  return {figures, named.facts};
}

at::Tensor Inference::logits(const at::Tensor& tokens_BS) {
  Batch batch;
  batch.tokens_BS = tokens_BS;
  return impl_->pass(std::move(batch));
}

std::unique_ptr<GenerationCache> Inference::new_cache(int64_t rows, int64_t capacity) const {
  return std::make_unique<GenerationCache>(impl_->state, rows, capacity);
}

at::Tensor Inference::next_logits(const at::Tensor& tokens_BS, GenerationCache& cache) {
  const std::vector<int64_t>& past = cache.past();
  const int64_t S = tokens_BS.size(1);
  Batch batch;
  batch.tokens_BS = tokens_BS;
  batch.positions = {{*std::max_element(past.begin(), past.end()), S}};
  batch.position_ids_BS =
      at::tensor(past, at::kLong).unsqueeze(1).add(at::arange(S, at::TensorOptions(at::kLong)).unsqueeze(0));
  impl_->state.use_cache(&cache);
  const auto without = [this](void*) { impl_->state.use_cache(nullptr); };
  const std::unique_ptr<void, decltype(without)> at_end(&cache, without);
  return impl_->pass(std::move(batch)).select(1, -1);
}

GenerationMemory Inference::measured_memory(int64_t keys) const {
  const Run& run = *impl_->run;
  GenerationMemory memory;
  double counted = 0;  // of the weights, by the allocator
  std::set<const c10::StorageImpl*> seen;
  for (const ParamPtr& param : run.units.all()) {
    memory.weights += static_cast<double>(param->tensor.nbytes());
    const at::Storage& storage = param->tensor.storage();  // of several, with gaps between them
    if (!seen.insert(storage.unsafeGetStorageImpl()).second) continue;
    counted += static_cast<double>(param->tensor.is_cpu() ? cpu_memory_of(storage.data_ptr()) : storage.nbytes());
  }
  if (keys > 0) memory.keys = static_cast<double>(keys);
  memory.passing = std::max(0.0, impl_->peak() - counted - memory.keys.value_or(0));
  memory.loading = impl_->loading;
  return memory;
}

bool Inference::every_block_appended(const GenerationCache& cache) const {
  const std::vector<UnitPtr>& units = impl_->run->units.units;
  for (size_t u = 0; u < units.size(); ++u)
    if (units[u]->is_block() && !cache.units().contains(static_cast<int64_t>(u))) return false;
  return !cache.units().empty();
}

}  // namespace drivetrain
