#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <set>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/torch_files/torch_checkpoint.h>
#include <drivetrain/toolkit/torch_files/torch_writer.h>

#include "universal.h"

namespace drivetrain::universal {
namespace {

// The form that DeepSpeed 0.14 and later read.
constexpr const char* kVersion = "0.16.0";
const std::string kModel = "model/", kOptimizer = "optimizer/";
using Members = std::vector<std::pair<TorchValue, TorchValue>>;

// A parameter's name is a folder's here.
void check_name(const std::string& name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos || name.size() > 200)
    throw fail(ErrorCode::checkpoint, "\"", name, "\" cannot be a folder's name, as a universal checkpoint wants it");
}

at::Tensor whole(const Checkpoint& state, const StoredTensor& tensor) {
  const StateBox box = whole_of(tensor.shape);
  const at::Tensor values = at::empty({box.rows, box.columns}, at::TensorOptions(at::kFloat));
  state.read(tensor.name, box, values);
  return values.view(tensor.shape);
}

int64_t integer_of(const Value& facts, const char* key) {
  const Value* value = facts.find(key);
  return value && value->is_int() ? value->as_int() : 0;
}

// The one group of parameters. DeepSpeed takes its values over those of its own config.
TorchValue param_group(const Value& facts) {
  Members group;
  if (const Value* rate = facts.find("lr"); rate && rate->is_number()) group.emplace_back("lr", rate->as_double());
  group.emplace_back("params", TorchValue::list({0}));
  return TorchValue::dict(std::move(group));
}

// Stages 1 and 2 read the first member, stage 3 the second.
TorchValue optimizer_state(const Value& facts, const at::Tensor& step) {
  const TorchValue groups = TorchValue::list({param_group(facts)});
  const TorchValue states = TorchValue::dict({{0, TorchValue::dict({{"step", step}})}});
  return TorchValue::dict({{"param_groups", groups},
                           {"optimizer_state_dict", TorchValue::dict({{"state", states}, {"param_groups", groups}})},
                           {"ds_version", kVersion}});
}

TorchValue model_states(const Value& facts, const std::vector<StoredTensor>& tensors) {
  Members shapes;
  for (const StoredTensor& t : tensors)
    if (t.name.starts_with(kModel)) shapes.emplace_back(t.name.substr(kModel.size()), TorchValue::size(t.shape));
  const int64_t step = integer_of(facts, "step");
  return TorchValue::dict({{"module", TorchValue::dict({})},
                           {"buffer_names", TorchValue::list({})},
                           {"optimizer", TorchValue()},
                           {"param_shapes", TorchValue::list({TorchValue::dict(std::move(shapes))})},
                           {"frozen_param_shapes", TorchValue()},
                           {"shared_params", TorchValue::dict({})},
                           {"frozen_param_fragments", TorchValue()},
                           {"lr_scheduler", TorchValue::dict({{"last_batch_iteration", step - 1}})},
                           {"data_sampler", TorchValue()},
                           {"random_ltd", TorchValue()},
                           {"sparse_tensor_module_names", TorchValue::list({})},
                           {"skipped_steps", std::max<int64_t>(0, step - integer_of(facts, "updates"))},
                           {"global_steps", step},
                           {"global_samples", 0},
                           {"dp_world_size", 1},
                           {"mp_world_size", 1},
                           {"ds_config", TorchValue::dict({})},
                           {"ds_version", kVersion},
                           {"universal_checkpoint_info", TorchValue::dict({{"universal_checkpoint_version", 0.2}})}});
}

}  // namespace

void write_folder(const std::string& folder, const Checkpoint& state) {
  const std::string tag = concat("global_step", integer_of(state.facts(), "step"), "_universal");
  const std::string zero = concat(folder, "/", tag, "/zero");
  FileCalls& calls = system_file_calls();
  make_folders(calls, zero);
  const std::vector<StoredTensor> tensors = state.tensors();
  std::set<std::string> folders;
  const auto write = [&](const std::string& name, const char* file, const TorchValue& value) {
    check_name(name);
    const std::string place = zero + "/" + name;
    if (folders.insert(place).second) make_folders(calls, place);
    write_torch_file(concat(place, "/", file, ".pt"), value);
  };
  const at::Tensor step =
      at::full({}, static_cast<double>(integer_of(state.facts(), "updates")), at::TensorOptions(at::kFloat));
  const auto values = [&](const StoredTensor& t) {
    return TorchValue::dict({{"cat_dim", 0}, {"param", whole(state, t)}});
  };
  for (const StoredTensor& t : tensors) {
    if (t.name.starts_with(kModel)) write(t.name.substr(kModel.size()), "fp32", values(t));
    if (!t.name.starts_with(kOptimizer)) continue;
    const size_t dot = t.name.rfind('.');
    const std::string name = t.name.substr(kOptimizer.size(), dot - kOptimizer.size());
    write(name, t.name.substr(dot + 1).c_str(), values(t));
    if (t.name.ends_with(".exp_avg")) write(name, "step", step);
  }
  write_torch_file(zero + "/optimizer_state.pt", optimizer_state(state.facts(), step));
  // Stage 3 looks for the second name.
  for (const char* name : {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt"})
    write_torch_file(concat(folder, "/", tag, "/", name), model_states(state.facts(), tensors));
  for (const std::string& place : folders) sync_folder(calls, place);
  sync_folder(calls, zero), sync_folder(calls, folder + "/" + tag);
  write_durable_file(calls, folder + "/latest_universal", tag);
  sync_folder(calls, folder);
}

}  // namespace drivetrain::universal
