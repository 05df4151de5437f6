#include "checkpoint/config_changes.h"

#include <algorithm>
#include <string_view>

#include <drivetrain/error.h>

#include "plugin/kinds.h"

namespace drivetrain {
namespace {

// Settings of the run that no number depends on, and those that only change the order of sums. All others, and the
// sections of all other kinds, change the numbers.
constexpr std::string_view kNoEffect[] = {
    "output_dir",    "steps_per_print", "save_final",           "save_dtype", "plugins",
    "eval_interval", "eval_iters",      "rendezvous_timeout_s", "capture",    "eval"};
constexpr std::string_view kRounding[] = {
    "threads", "mesh_order", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "device", "reduce_every"};
constexpr std::string_view kNoEffectKinds[] = {"monitor", "checkpoint_store", "checkpoint_policy", "tokenizer"};
constexpr std::string_view kRoundingKinds[] = {"communicator", "data_parallel", "tensor_parallel", "context_parallel",
                                               "schedule",     "attention",     "recompute"};

template <class List>
bool in(const List& list, const std::string& name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

bool is_section(const std::string& key, const std::string_view kind) {
  return key == kind || key == section_of_kind(std::string(kind));
}

ChangeEffect effect_of(const std::string& key) {
  const auto any = [&](const auto& kinds) {
    return std::any_of(std::begin(kinds), std::end(kinds),
                       [&](std::string_view kind) { return is_section(key, kind); });
  };
  if (in(kNoEffect, key) || any(kNoEffectKinds)) return ChangeEffect::none;
  if (in(kRounding, key) || any(kRoundingKinds)) return ChangeEffect::rounding;
  return ChangeEffect::numbers;
}

std::string text_of(const Value* value) { return value ? value->to_json() : "absent"; }

struct Comparison {
  std::vector<ConfigChange> changes;
  ChangeEffect effect = ChangeEffect::numbers;  // of the section at hand

  void compare(const std::string& path, const Value* before, const Value* now) {
    if (before && now && before->is_object() && now->is_object()) return members(path + ".", *before, *now);
    if (before && now && *before == *now) return;
    changes.push_back({path, text_of(before), text_of(now), effect});
  }
  void members(const std::string& prefix, const Value& before, const Value& now) {
    const bool top = prefix.empty();
    const auto visit = [&](const std::string& key) {
      if (key.starts_with("_")) return;
      if (top) effect = effect_of(key);
      compare(prefix + key, before.find(key), now.find(key));
    };
    for (const auto& member : before.members()) visit(member.key);
    for (const auto& member : now.members())
      if (!before.find(member.key)) visit(member.key);
  }
};

}  // namespace

std::string ConfigChange::text() const { return concat(path, ": ", before, " then, ", now, " now"); }

std::vector<ConfigChange> config_changes(const Value& before, const Value& now) {
  Comparison comparison;
  if (before.is_object() && now.is_object()) comparison.members("", before, now);
  return std::move(comparison.changes);
}

}  // namespace drivetrain
