#include <algorithm>

#include <drivetrain/toolkit/torch_files/pickle_value.h>

#include "tag.h"

namespace drivetrain::deepspeed {
namespace {

void read_scaler(const Tag& tag, Value& facts) {
  const PickleTree& tree = tag.optimizers.front()->tree();
  const PickleNode* scaler = member(tree, tag.state_of(0), "loss_scaler");
  const PickleNode* scale = scaler ? tree.find(*scaler, "cur_scale") : nullptr;
  const PickleNode* dynamic = scaler ? tree.find(*scaler, "dynamic") : nullptr;
  if (!scale || !dynamic || tree.integer(*dynamic, "dynamic") == 0) return;
  Value values = Value::object();
  values.set("scale", tree.real(*scale, "cur_scale"));
  const auto number = [&](const char* ours, const char* theirs) {
    if (const PickleNode* node = member(tree, *scaler, theirs)) values.set(ours, tree.integer(*node, theirs));
  };
  number("tolerance", "cur_hysteresis"), number("steps", "cur_iter"), number("last_overflow", "last_overflow_iter");
  facts.set("loss_scaler", std::move(values));
}

// The rate of the next step: of the first group of the optimizer, wherever a stage keeps it.
void read_rate(const TorchFile& file, const PickleNode& holder, Value& facts) {
  const PickleTree& tree = file.tree();
  for (const char* const key : {"base_optimizer_state", "optimizer_state_dict", ""}) {
    const PickleNode* const optimizer = *key ? member(tree, holder, key) : &holder;
    const PickleNode* const groups = optimizer ? tree.find(*optimizer, "param_groups") : nullptr;
    if (!groups || groups->kind != PickleNode::Kind::list || groups->items.empty()) continue;
    const PickleNode* const rate = tree.find(*groups->items.front(), "lr");
    if (rate && (rate->kind == PickleNode::Kind::real || TorchFile::is_tensor(*rate)))
      facts.set("lr", file.number(*rate, "lr"));
    return;
  }
}

// What the run was told, which the one that goes on is compared with.
void read_settings(const Tag& tag, Value& facts) {
  if (const PickleNode* const config = member(tag.model_tree(), tag.model_root(), "ds_config"))
    if (auto settings = plain_value(*config); settings && settings->is_object())
      facts.set("settings", std::move(*settings));
  if (!tag.optimizers.empty())
    read_rate(*tag.optimizers.front(), tag.state_of(0), facts);
  else if (const PickleNode* const optimizer = member(tag.model_tree(), tag.model_root(), "optimizer"))
    read_rate(*tag.models.front(), *optimizer, facts);
}

}  // namespace

void add_facts(Tag& tag) {
  Value& facts = tag.made->set_facts();
  const auto count = [&](const char* key) -> int64_t {
    const PickleNode* node = member(tag.model_tree(), tag.model_root(), key);
    return node ? tag.model_tree().integer(*node, key) : 0;
  };
  if (const int64_t tensor_parallel = count("mp_world_size"); tensor_parallel > 1)
    throw tag.bad("was saved with tensor parallelism over ", tensor_parallel, " ranks, which is not supported");
  facts.set("format",
            concat("DeepSpeed, ZeRO stage ", tag.stage, ", ", std::max<size_t>(tag.optimizers.size(), 1), " ranks"));
  facts.set("naming", "hf");
  const int64_t steps = count("global_steps");
  if (tag.updates > steps)
    tag.notes.push_back(
        concat(tag.files.folder, ": the optimizer has counted ", tag.updates, " updates in ", steps,
               " steps (DeepSpeed's wrapper for 16 bits makes one of zeros at its start): bias correction ",
               "and the schedule of CONFIG go on from ", tag.updates));
  facts.set("step", steps);
  facts.set("updates", tag.updates);
  facts.set("skipped", count("skipped_steps"));
  if (!tag.optimizers.empty()) read_scaler(tag, facts);
  read_settings(tag, facts);
  Value::Array notes;
  for (const std::string& note : tag.notes) notes.emplace_back(note);
  facts.set("notes", std::move(notes));
}

}  // namespace drivetrain::deepspeed
