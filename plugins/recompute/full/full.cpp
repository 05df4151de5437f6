#include "full.h"

#include <drivetrain/error.h>
#include <drivetrain/mesh.h>
#include <drivetrain/toolkit/not_recorded.h>

namespace drivetrain::full_recompute {

Full::Full(const Options& options, const Services& services)
    : options_(options), services_(services), blocks_(options.fraction) {
  if (options.cpu_checkpointing && !services.device.is_cpu()) host_.emplace(/*pinned=*/true);
}

void Full::plan(PlanContext& ctx) {
  if (host_)
    ctx.offer(
        concat(toolkit::kNotRecorded, "cpu_checkpointing finds memory of the host while a step runs; leave it out"));
  else
    ctx.capturable();
  layer_ranks_ = ctx.run().tensor_ranks.value_or(1);
  if (!ctx.run().training) return;
  name_idle_keys(options_, ctx);
  if (options_.cpu_checkpointing && !host_)
    ctx.no_effect("cpu_checkpointing", "the run is on the CPU: inputs of blocks are in the host's memory already");
  if (blocks_.plan(ctx) > 0) blocks_.report_cost(ctx, host_ ? &*host_ : nullptr);
}

// Here the other ranks' parts are known to the mesh.
void Full::build(Builder& builder) {
  if (!options_.partition_activations) return;
  const bool alone = layer_ranks_ == 1;
  if (!alone && builder.activation_cuts.empty())
    throw fail(ErrorCode::config, "recompute/full: partition_activations asks for inputs of blocks cut over the ",
               layer_ranks_,
               " ranks of tensor_parallel, which is not in this version: each keeps all of them\n   set "
               "\"sequence_parallel\": true in ",
               "tensor_parallel, which cuts everything between layers, or remove partition_activations");
  services_.log.info(
      concat("no effect: recompute/full: partition_activations changes nothing: ",
             alone ? "there is one tensor-parallel rank" : "sequence parallelism cuts the inputs already"));
}

Keep Full::keep(const Region& region) const {
  return region.name.empty() && blocks_.has(region.unit) ? Keep::input : Keep::all;
}

std::unique_ptr<Held> Full::hold(Tensors inputs) const {
  return host_ ? host_->hold(inputs) : Recompute::hold(std::move(inputs));
}

}  // namespace drivetrain::full_recompute

DRIVETRAIN_PLUGIN(drivetrain::Recompute, "full", drivetrain::full_recompute::Full)
