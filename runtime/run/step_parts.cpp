#include "run/run.h"

namespace drivetrain {
namespace {

FeedPlan feed_plan(const PreparedRun& run) {
  const RunPlan& plan = run.plan;
  FeedPlan feed;
  feed.last_step = plan.settings.train_steps;
  feed.train_batch_size = plan.batch.train_batch_size;
  feed.micro_batch_size = plan.batch.micro_batch_size;
  feed.accumulation = plan.batch.accumulation;
  feed.dp_rank = run.batch_rank();
  feed.dp_size = plan.mesh.batch_ranks();
  feed.eval_interval = plan.settings.eval_interval;
  feed.eval_iters = plan.settings.eval_iters;
  feed.vocab_size = plan.model.vocab_size;
  feed.dataset = plan.id_of(Dataset::kKind);
  feed.seq_length = plan.run.seq_length;
  feed.documents = plan.data.documents;
  return feed;
}

}  // namespace

ExecutorParts executor_parts(PreparedRun& run) {
  return {.schedule = *run.plugins.schedule,
          .mesh = *run.mesh,
          .units = run.units,
          .chunk_units = run.chunk_units,
          .strategies = run.plugins.strategies,
          .recompute = run.plugins.recompute.get(),
          .device = run.services->device,
          .micro_batches = run.plan.batch.accumulation,
          .storage_owner = run.plugins.data_parallel.get(),
          .flight = run.flight.get(),
          .model_id = run.plan.id_of(Model::kKind),
          .schedule_id = run.plan.id_of(Schedule::kKind),
          .recompute_id = run.plan.id_of(Recompute::kKind)};
}

FinishParts finish_parts(Run& run) {
  return {.chunks = run.chunks,
          .model_params = run.model_params,
          .mesh = *run.mesh,
          .strategies = run.plugins.strategies,
          .optimizer = *run.plugins.optimizer,
          .lr_schedule = *run.plugins.lr_schedule,
          .log = *run.log,
          .precision = run.plugins.precision.get(),
          .device = run.services->device,
          .runtime = run.device_runtime(),
          .param_dtype = run.plan.dtypes.types.param,
          .gradient_axes = run.plan.mesh.gradient_axes(),
          .tied_stages = run.plan.tied_stages,
          .train_batch_size = run.plan.batch.train_batch_size,
          .seq_length = run.plan.run.seq_length,
          .batch_ranks = run.plan.mesh.batch_ranks(),
          .train_steps = run.plan.settings.train_steps,
          .gradient_clipping = run.plan.settings.gradient_clipping,
          .param_groups = run.param_groups,
          .optimizer_id = run.plan.id_of(Optimizer::kKind),
          .lr_schedule_id = run.plan.id_of(LrSchedule::kKind),
          .precision_id = run.plan.id_of(Precision::kKind),
          .communicator_id = run.plan.id_of(Communicator::kKind)};
}

EvaluatorParts evaluator_parts(PreparedRun& run) {
  const RunPlan& plan = run.plan;
  return {.executor = executor_parts(run),
          .runtime = run.device_runtime(),
          .batch_cuts = run.batch_cuts,
          .gradient_axes = plan.mesh.gradient_axes(),
          .micro_batch_size = plan.batch.micro_batch_size,
          .batch_rank = run.batch_rank(),
          .batch_ranks = plan.mesh.batch_ranks(),
          .vocab_size = plan.model.vocab_size,
          .most_positions = plan.run.seq_length.value_or(plan.model.max_position_embeddings)};
}

TrainerParts trainer_parts(Run& run) {
  const ModelFacts& model = run.plan.model;
  return {.executor = executor_parts(run),
          .finish = finish_parts(run),
          .feed = feed_plan(run),
          .dataset = run.plugins.dataset,
          .evaluator = evaluator_parts(run),
          .evaluations = run.plugins.evaluations,
          .batch_cuts = run.batch_cuts,
          .activation_cuts = run.activation_cuts,
          .seed = run.services->seed,
          .capture = run.plan.capture.on,
          .flops_per_token = model.flops_per_token(static_cast<double>(run.plan.run.seq_length.value())),
          .flops_formula = model.flops_formula};
}

}  // namespace drivetrain
