// Source: deepspeed/runtime/engine.py (_common_checkpoint_state), runtime/zero/{stage_1_and_2,stage3}.py (state_dict),
// runtime/bf16_optimizer.py.
#include "keys.h"

namespace drivetrain::deepspeed {
namespace {

using enum KeyUse;

constexpr KeyRow kKeys[] = {
    {kModelStates, "module", honoured, "weights without ZeRO, buffers, frozen parameters"},
    {kModelStates, "buffer_names", honoured, "which of the module are no parameters"},
    {kModelStates, "optimizer", honoured,
     "without ZeRO: moments and float32 values; the rate of the next step is compared with CONFIG's schedule"},
    {kModelStates, "param_shapes", honoured, "names and order in the flat partitions"},
    {kModelStates, "frozen_param_shapes", honoured, "parameters that are not trained"},
    {kModelStates, "frozen_param_fragments", honoured, "their values"},
    {kModelStates, "shared_params", honoured, "second names of one parameter"},
    {kModelStates, "global_steps", honoured, "the step"},
    {kModelStates, "skipped_steps", honoured, "steps without an update"},
    {kModelStates, "mp_world_size", refused, "above 1: tensor parallelism"},
    {kModelStates, "lr_scheduler", no_effect,
     "the rate of the next step is compared with CONFIG's schedule, which counts"},
    {kModelStates, "data_sampler", no_effect, "data go on with the row after the last step's"},
    {kModelStates, "random_ltd", no_effect, "not in this version"},
    {kModelStates, "sparse_tensor_module_names", no_effect, "gradients are summed whole"},
    {kModelStates, "global_samples", no_effect, "it follows from the step"},
    {kModelStates, "dp_world_size", no_effect, "partition_count of every file is compared instead"},
    {kModelStates, "checkpoint_parallel_dimensions", no_effect, "files of other dimensions are refused by their names"},
    {kModelStates, "universal_checkpoint_info", no_effect, "for DeepSpeed's own conversion"},
    {kModelStates, "ds_config", compared, "with CONFIG, by which training goes on; what differs is named"},
    {kModelStates, "ds_version", no_effect, "the form of the file is looked at"},
    {kOptimStates, "optimizer_state_dict", honoured, "see below"},
    {kOptimStates, "ds_config", no_effect, "that of model_states is compared"},
    {kOptimStates, "ds_version", no_effect, "the form of the file is looked at"},
    {kOptimizerState, "zero_stage", honoured, "how partitions are cut"},
    {kOptimizerState, "partition_count", compared, "with the number of files"},
    {kOptimizerState, "single_partition_of_fp32_groups", honoured, "stages 1 and 2: float32 values"},
    {kOptimizerState, "base_optimizer_state", honoured,
     "stages 1 and 2: moments; the rate of the next step is compared with CONFIG's schedule"},
    {kOptimizerState, "fp32_flat_groups", honoured, "stage 3: float32 values"},
    {kOptimizerState, "optimizer_state_dict", honoured, "stage 3: moments; the rate likewise"},
    {kOptimizerState, "loss_scaler", honoured, "a dynamic scale and its counters"},
    {kOptimizerState, "param_alignment_paddings", refused, "other than 0: padding between parameters"},
    {kOptimizerState, "group_paddings", no_effect, "padding follows from the shapes"},
    {kOptimizerState, "param_slice_mappings", no_effect, "places follow from the shapes"},
    {kOptimizerState, "ds_zero_partition_groups", no_effect, "places follow from the shapes"},
    {kOptimizerState, "dynamic_loss_scale", no_effect, "loss_scaler says it"},
    {kOptimizerState, "overflow", no_effect, "of a step that is over"},
    {kOptimizerState, "clip_grad", no_effect, "CONFIG's gradient_clipping counts, and ds_config is compared with it"},
    {kOptimizerState, "universal_checkpoint_info", no_effect, "for DeepSpeed's own conversion"},
    {kOptimizerState, "ds_version", no_effect, "the form of the file is looked at"},
};

}  // namespace

std::span<const KeyRow> keys() { return kKeys; }

std::vector<std::string> unknown_keys(const PickleTree& tree, const PickleNode& node, const char* part) {
  std::vector<std::string> names;
  for (const auto& [key, value] : tree.pairs(node, "the keys")) {
    const bool is_text = key->kind == PickleNode::Kind::text;
    if (!is_text || !find_key(keys(), part, key->text))
      names.push_back(is_text ? key->text.substr(0, 100) : "(no text)");
  }
  return names;
}

}  // namespace drivetrain::deepspeed
