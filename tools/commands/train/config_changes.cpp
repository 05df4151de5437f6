#include "train/config_changes.h"

#include <algorithm>
#include <string_view>

#include <drivetrain/error.h>

#include "plugin/kinds.h"

namespace drivetrain {
namespace {

// Settings of the run that no number depends on, and those that only change the order of sums. All others, and the
// sections of all other kinds, change the numbers.
constexpr std::string_view kNoEffect[] = {
    "output_dir",      "steps_per_print",    "save_final",           "save_dtype",     "plugins",
    "eval_interval",   "eval_iters",         "rendezvous_timeout_s", "capture",        "eval",
    "hook_timeout_s",  "damaged_checkpoint", "flight_record",        "stall_report_s", "straggler_factor",
    "straggler_steps", "straggler_least_s"};
constexpr std::string_view kRounding[] = {
    "threads", "mesh_order", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "device", "reduce_every"};
constexpr std::string_view kNoEffectKinds[] = {"monitor", "checkpoint_store", "checkpoint_policy", "tokenizer"};
constexpr std::string_view kRoundingKinds[] = {"communicator",    "data_parallel",    "tensor_parallel",
                                               "expert_parallel", "context_parallel", "schedule",
                                               "attention",       "recompute"};

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

// A number is one whether it was written with a point or not.
bool same_setting(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (!a.is_array() || !b.is_array()) return a == b;
  return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), same_setting);
}

void compare_common(const Value& theirs, const Value& ours, const std::string& prefix,
                    std::vector<ConfigChange>& changes) {
  for (const Value::Member& one : theirs.members()) {
    const Value* const other = ours.find(one.key);
    if (!other || one.value.is_null() || one.value.is_string()) continue;
    if (prefix.empty() && effect_of(one.key) != ChangeEffect::numbers) continue;
    if (one.value.is_object() && other->is_object())
      compare_common(one.value, *other, prefix + one.key + ".", changes);
    else if (!same_setting(one.value, *other))
      changes.push_back({prefix + one.key, one.value.to_json(), other->to_json(), ChangeEffect::numbers});
  }
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

// Takes the times out of objects of `now` whose digest is that of `before`, and counts those that were others.
int64_t erase_known_times(Value& before, Value& now) {
  if (!before.is_object() || !now.is_object()) return 0;
  int64_t others = 0;
  const Value *const then = before.find("digest"), *const digest = now.find("digest");
  if (then && digest && *then == *digest) {
    std::vector<std::string> times;
    for (const auto& member : now.members())
      if (member.key.ends_with("_mtime_ns")) times.push_back(member.key);
    for (const std::string& key : times) {
      const Value* const time = before.find(key);
      others += !time || !(*time == *now.find(key));
      before.erase(key), now.erase(key);
    }
  }
  for (auto& own : now.members())
    for (auto& other : before.members())
      if (own.key == other.key) others += erase_known_times(other.value, own.value);
  return others;
}

}  // namespace

std::string ConfigChange::text() const { return concat(path, ": ", before, " then, ", now, " now"); }

std::vector<ConfigChange> config_changes(const Value& before, const Value& now) {
  Comparison comparison;
  if (before.is_object() && now.is_object()) comparison.members("", before, now);
  return std::move(comparison.changes);
}

std::vector<ConfigChange> common_changes(const Value& theirs, const Value& ours) {
  std::vector<ConfigChange> changes;
  compare_common(theirs, ours, "", changes);
  return changes;
}

std::vector<ConfigChange> data_changes(const Value& before, const Value& now) {
  Value then = before, data = now;
  const int64_t others = erase_known_times(then, data);
  std::vector<ConfigChange> changes = config_changes(then, data);
  for (ConfigChange& change : changes) change.path = "the data's " + change.path, change.effect = ChangeEffect::numbers;
  if (others > 0)
    changes.push_back(
        {"the data's files", "others by their times of change", "the same by sizes and digests", ChangeEffect::none});
  return changes;
}

}  // namespace drivetrain
