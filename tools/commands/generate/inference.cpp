#include "generate/inference.h"

#include <algorithm>
#include <filesystem>

#include "plan/prepare_run.h"
#include "run/run.h"
#include "step/evaluator.h"
#include "step/executor.h"

namespace drivetrain {
namespace {

std::string weights_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  for (const fs::path& path : {fs::path(folder), fs::path(folder) / "final"})
    if (fs::exists(path / "config.json", unknown)) return fs::absolute(path).string();
  throw fail(ErrorCode::config, folder, " holds no model: neither ", folder, "/config.json nor ", folder,
             "/final/config.json is there. Give a run folder of a finished run or a Hugging Face folder");
}

std::unique_ptr<Run> load(const std::string& folder, int64_t seed, const Registry& registry, const RankSetup& setup) {
  Problems problems;
  Value config = Value::object();
  config.set("model", Value::object()).set("from", weights_folder(folder));
  config.set("seed", seed);
  config.set("train_steps", 1);  // every run's settings want some
  const RunSettings settings = read_run_settings(config, "generate", problems);
  std::vector<ChosenPlugin> chosen = choose_plugins(config, registry, "cpu", problems, Purpose::generate);
  problems.throw_if_any();
  auto run =
      std::make_unique<Run>(std::move(*prepare_run(settings, std::move(chosen), registry, setup, Purpose::generate)));
  build_run(*run);
  return run;
}

}  // namespace

struct Inference::Impl {
  Impl(std::unique_ptr<Run> built, const Registry& all)
      : registry(all),
        run(std::move(built)),
        state(run->services->seed, &run->units, run->plugins.recompute.get(), {}, run->plan.id_of(Recompute::kKind)),
        executor(executor_parts(*run), state, 0) {}

  const Registry& registry;
  std::unique_ptr<Run> run;
  StepState state;
  Executor executor;
};

Inference::Inference(const std::string& folder, int64_t seed, const Registry& registry, std::shared_ptr<Log> log) {
  RankSetup setup;
  setup.log = std::move(log);
  setup.store = make_local_store();
  impl_ = std::make_unique<Impl>(load(folder, seed, registry, setup), registry);
}

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
  impl_->executor.begin(Pass::forward_only, 1, Mode::generate);
  impl_->executor.run([&](int64_t) { return batch; });
  return impl_->executor.logits();
}

}  // namespace drivetrain
