#include "options.h"

namespace drivetrain {
namespace {

using F = FsdpOptions;

OptionTable mixed_precision_table() {
  using M = MixedPrecisionPolicy;
  return table<M>()
      .field("param_dtype", &M::param_dtype, "type that units compute in: only the one that the run's precision says")
      .field("reduce_dtype", &M::reduce_dtype, "type of gradients when they are summed over ranks: only the run's")
      .field("output_dtype", &M::output_dtype, "only null: activations have the type that units compute in")
      .field("cast_forward_inputs", &M::cast_forward_inputs, "without effect: a model's inputs are integers");
}

// Defaults that are not two options' at once, so that resolved.json shows them.
void fill(F& o) {
  if (shares_nothing(o)) return;  // what is given then changes nothing, and only that shall be named
  if (!o.sharding_strategy && !o.reshard_after_forward) o.reshard_after_forward = true;
  if (!o.prefetch) o.prefetch = 1;
  if (!o.param_persistence_threshold) o.param_persistence_threshold = 0;
}

}  // namespace

OptionTable fsdp_table() {
  return table<F>()
      .field("reshard_after_forward", &F::reshard_after_forward,
             "whole parameters are released after forward and gathered again for backward; false: kept until then")
      .field("prefetch", &F::prefetch, "units gathered ahead of their use; null: 1")
      .range(0, 1024)
      .field("shard_group_size", &F::shard_group_size,
             "neighbouring ranks that share one copy of the state; null: all ranks")
      .at_least(1)
      .field("sharding_strategy", &F::sharding_strategy,
             "the older way to say it; HYBRID_SHARD without shard_group_size: the ranks of a host")
      .one_of({"FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", "NO_SHARD"})
      .field("reduce_every", &F::reduce_every,
             "micro-batches added up before their gradients are summed over ranks, 0: all of a step; null: the "
             "top-level key, else 1, and 0 where nothing is sharded")
      .at_least(0)
      .field("param_persistence_threshold", &F::param_persistence_threshold,
             "parameters of up to so many elements stay whole; null: 0")
      .at_least(0)
      .group("mixed_precision", &F::mixed_precision, mixed_precision_table(), "PyTorch's MixedPrecisionPolicy")
      .alias("mp_policy")
      .refused("forward_prefetch", "set \"prefetch\" to the number of units that are gathered ahead")
      .refused("backward_prefetch", "set \"prefetch\" to the number of units that are gathered ahead")
      .refused("limit_all_gathers", "\"prefetch\" limits them; remove it")
      .refused("use_orig_params", "parameters always keep their names; remove it")
      .refused("sync_module_states", "all ranks start from the same values; remove it")
      .refused("offload_policy", "not in this version: parameters stay on the device; remove it")
      .refused("cpu_offload", "not in this version: parameters stay on the device; remove it")
      .refused("auto_wrap_policy", "what is gathered at once is a unit of the model; remove it")
      .refused("ignored_states", "not in this version; remove it")
      .finish(fill);
}

}  // namespace drivetrain
