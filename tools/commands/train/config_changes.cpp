#include "train/config_changes.h"

#include <algorithm>
#include <string_view>

#include <drivetrain/error.h>

#include "plugin/kinds.h"

namespace drivetrain {
namespace {

// Settings of the run that no number depends on (of long_context: but for the sections that it sets, which are compared
// themselves), and those that only change the order of sums. All others, and the sections of all other kinds, change
// the numbers.
constexpr std::string_view kNoEffect[] = {
    "output_dir",      "steps_per_print",    "save_final",           "save_dtype",     "plugins",
    "eval_interval",   "eval_iters",         "rendezvous_timeout_s", "capture",        "eval",
    "hook_timeout_s",  "damaged_checkpoint", "flight_record",        "stall_report_s", "straggler_factor",
    "straggler_steps", "straggler_least_s",  "long_context"};
constexpr std::string_view kRounding[] = {
    "threads", "mesh_order", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "device", "reduce_every"};
// What is computed again has the same bits, whatever the policy: the suite of that kind asks for them.
constexpr std::string_view kNoEffectKinds[] = {"monitor", "checkpoint_store", "checkpoint_policy", "tokenizer",
                                               "recompute"};
constexpr std::string_view kRoundingKinds[] = {
    "communicator", "data_parallel", "tensor_parallel", "expert_parallel", "context_parallel", "schedule", "attention"};

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

std::string type_of(const Value& section) {
  const Value* const type = section.find("type");
  return type && type->is_string() ? type->as_string() : "";
}

bool same_type(const Value& before, const Value& now) {
  return !type_of(now).empty() && type_of(before) == type_of(now);
}

// Two lists of sections of the same plugins in the same order.
bool same_types(const Value& before, const Value& now) {
  return std::equal(before.items().begin(), before.items().end(), now.items().begin(), now.items().end(), same_type);
}

// Every key of either object, once, but notes and facts.
template <class Visit>
void for_each_key(const Value& before, const Value& now, const Visit& visit) {
  for (const auto& member : before.members())
    if (!member.key.starts_with("_")) visit(member.key, before.find(member.key), now.find(member.key));
  for (const auto& member : now.members())
    if (!member.key.starts_with("_") && !before.find(member.key)) visit(member.key, nullptr, now.find(member.key));
}

struct Comparison {
  const std::vector<DeclaredEffects>& declared;
  std::vector<ConfigChange> changes;

  void compare(const std::string& path, const Value* before, const Value* now, ChangeEffect effect) {
    if (before && now && before->is_object() && now->is_object())
      return for_each_key(*before, *now, [&](const std::string& key, const Value* then, const Value* value) {
        compare(path + "." + key, then, value, effect);
      });
    if (before && now && *before == *now) return;
    changes.push_back({path, text_of(before), text_of(now), effect});
  }

  // Of one plugin then and now, by what it declares.
  void section(const std::string& path, const Value& before, const Value& now, const DeclaredEffects& plugin,
               ChangeEffect undeclared) {
    const ChangeEffect effect = plugin.rounding ? std::min(undeclared, ChangeEffect::rounding) : undeclared;
    const auto option = [&](const std::string& key, const Value* then, const Value* value) {
      compare(path + ".params." + key, then, value, in(plugin.same_bits, key) ? ChangeEffect::none : effect);
    };
    for_each_key(before, now, [&](const std::string& key, const Value* then, const Value* value) {
      if (key == "params" && then && value && then->is_object() && value->is_object())
        for_each_key(*then, *value, option);
      else
        compare(path + "." + key, then, value, effect);
    });
  }

  void top(const std::string& key, const Value* before, const Value* now) {
    const ChangeEffect effect = effect_of(key);
    if (before && now && before->is_array() && now->is_array() && same_types(*before, *now)) {
      for (size_t i = 0; i < now->items().size(); ++i) {
        const std::string type = type_of(now->items()[i]);
        section(concat(key, "/", type), before->items()[i], now->items()[i], declared_by(key, type), effect);
      }
    } else if (before && now && same_type(*before, *now)) {
      section(key, *before, *now, declared_by(key, type_of(*now)), effect);
    } else {
      compare(key, before, now, effect);
    }
  }
  DeclaredEffects declared_by(const std::string& key, const std::string& type) const {
    for (const DeclaredEffects& one : declared)
      if (one.name == type && is_section(key, one.kind)) return one;
    return {};
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

std::vector<DeclaredEffects> declared_effects(const Registry& registry) {
  std::vector<DeclaredEffects> list;
  for (const Found& found : registry.found())
    if (found.state == Found::usable && (found.entry.rounding || !found.entry.same_bits.empty()))
      list.push_back({found.entry.kind, found.entry.name, found.entry.rounding, found.entry.same_bits});
  return list;
}

std::vector<ConfigChange> config_changes(const Value& before, const Value& now,
                                         const std::vector<DeclaredEffects>& declared) {
  Comparison comparison{declared, {}};
  if (before.is_object() && now.is_object())
    for_each_key(before, now, [&](const std::string& key, const Value* then, const Value* value) {
      comparison.top(key, then, value);
    });
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
