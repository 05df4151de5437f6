// Source: deepspeed/runtime/engine.py (_common_checkpoint_state), runtime/zero/{stage_1_and_2,stage3}.py (state_dict),
// runtime/bf16_optimizer.py.
#include "keys.h"

#include <algorithm>

namespace drivetrain::deepspeed {

const std::vector<KeyRow>& keys_of_model_states() {
  static const auto* const keys = new std::vector<KeyRow>{
      {"module", KeyUse::honoured, "weights without ZeRO, buffers, frozen parameters"},
      {"buffer_names", KeyUse::honoured, "which of the module are no parameters"},
      {"optimizer", KeyUse::honoured, "without ZeRO: moments and float32 values"},
      {"param_shapes", KeyUse::honoured, "names and order in the flat partitions"},
      {"frozen_param_shapes", KeyUse::honoured, "parameters that are not trained"},
      {"frozen_param_fragments", KeyUse::honoured, "their values"},
      {"shared_params", KeyUse::honoured, "second names of one parameter"},
      {"global_steps", KeyUse::honoured, "the step"},
      {"skipped_steps", KeyUse::honoured, "steps without an update"},
      {"mp_world_size", KeyUse::refused, "above 1: tensor parallelism"},
      {"lr_scheduler", KeyUse::without_effect, "the rate is that of CONFIG's schedule at this step"},
      {"data_sampler", KeyUse::without_effect, "data go on with the row after the last step's"},
      {"random_ltd", KeyUse::without_effect, "not in this version"},
      {"sparse_tensor_module_names", KeyUse::without_effect, "gradients are summed whole"},
      {"global_samples", KeyUse::without_effect, "it follows from the step"},
      {"dp_world_size", KeyUse::without_effect, "partition_count of every file is compared instead"},
      {"checkpoint_parallel_dimensions", KeyUse::without_effect,
       "files of other dimensions are refused by their names"},
      {"universal_checkpoint_info", KeyUse::without_effect, "for DeepSpeed's own conversion"},
      {"ds_config", KeyUse::without_effect, "training goes on by CONFIG"},
      {"ds_version", KeyUse::without_effect, "the form of the file is looked at"}};
  return *keys;
}

const std::vector<KeyRow>& keys_of_optim_states() {
  static const auto* const keys =
      new std::vector<KeyRow>{{"optimizer_state_dict", KeyUse::honoured, "see below"},
                              {"ds_config", KeyUse::without_effect, "training goes on by CONFIG"},
                              {"ds_version", KeyUse::without_effect, "the form of the file is looked at"}};
  return *keys;
}

const std::vector<KeyRow>& keys_of_optimizer_state() {
  static const auto* const keys =
      new std::vector<KeyRow>{{"zero_stage", KeyUse::honoured, "how partitions are cut"},
                              {"partition_count", KeyUse::compared, "with the number of files"},
                              {"single_partition_of_fp32_groups", KeyUse::honoured, "stages 1 and 2: float32 values"},
                              {"base_optimizer_state", KeyUse::honoured, "stages 1 and 2: moments"},
                              {"fp32_flat_groups", KeyUse::honoured, "stage 3: float32 values"},
                              {"optimizer_state_dict", KeyUse::honoured, "stage 3: moments"},
                              {"loss_scaler", KeyUse::honoured, "a dynamic scale and its counters"},
                              {"param_alignment_paddings", KeyUse::refused, "other than 0: padding between parameters"},
                              {"group_paddings", KeyUse::without_effect, "padding follows from the shapes"},
                              {"param_slice_mappings", KeyUse::without_effect, "places follow from the shapes"},
                              {"ds_zero_partition_groups", KeyUse::without_effect, "places follow from the shapes"},
                              {"dynamic_loss_scale", KeyUse::without_effect, "loss_scaler says it"},
                              {"overflow", KeyUse::without_effect, "of a step that is over"},
                              {"clip_grad", KeyUse::without_effect, "CONFIG's gradient_clipping counts"},
                              {"universal_checkpoint_info", KeyUse::without_effect, "for DeepSpeed's own conversion"},
                              {"ds_version", KeyUse::without_effect, "the form of the file is looked at"}};
  return *keys;
}

const char* word_of(KeyUse use) {
  switch (use) {
    case KeyUse::honoured:
      return "honoured";
    case KeyUse::compared:
      return "compared";
    case KeyUse::without_effect:
      return "without effect";
    case KeyUse::refused:
      return "refused";
  }
  return "";
}

std::vector<std::string> unknown_keys(const PickleTree& tree, const PickleNode& node,
                                      const std::vector<KeyRow>& table) {
  std::vector<std::string> names;
  for (const auto& [key, value] : tree.pairs(node, "the keys")) {
    const bool known = key->kind == PickleNode::Kind::text &&
                       std::any_of(table.begin(), table.end(), [&](const KeyRow& row) { return key->text == row.key; });
    if (!known) names.push_back(key->kind == PickleNode::Kind::text ? key->text.substr(0, 100) : "(no text)");
  }
  return names;
}

}  // namespace drivetrain::deepspeed
