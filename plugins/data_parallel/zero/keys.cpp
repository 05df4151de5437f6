// What is said of keys that were given and change nothing, or are not in this version.
#include <algorithm>

#include "key_rules.h"
#include "plan.h"

namespace drivetrain {
namespace {

// A section counts as given if anything in it is.
bool is_given(const Value& value) {
  if (!value.is_object()) return !value.is_null();
  const auto& members = value.members();
  return std::any_of(members.begin(), members.end(), [](const Value::Member& m) { return is_given(m.value); });
}

class KeyReport {
 public:
  KeyReport(const ZeroOptions& options, PlanContext& ctx) : given_(zero_table().to_value(&options)), ctx_(ctx) {}

  void name_idle() {
    each(KeyRule::Of::idle, [&](const KeyRule& rule, const Value&) { ctx_.no_effect(rule.key, rule.why); });
  }

  void name_gathers(const std::string& why) {
    each(KeyRule::Of::gathers, [&](const KeyRule& rule, const Value&) { ctx_.no_effect(rule.key, why); });
  }

  // Nothing is sharded: of all keys only how often gradients are summed still counts.
  void name_all() {
    for (const Value::Member& m : given_.members())
      if (m.key != "stage" && m.key != "reduce_every" && is_given(m.value))
        ctx_.no_effect(m.key, "stage is 0 and every rank holds everything");
  }

  void refuse() {
    each(KeyRule::Of::refused, [&](const KeyRule& rule, const Value& value) {
      ctx_.refuse(concat(rule.key, " = ", value.to_json(), " is not in this version: ", rule.why, "; remove it"));
    });
  }

 private:
  // Of the keys that were given and ask for something else than what happens anyway.
  template <class Say>
  void each(KeyRule::Of of, const Say& say) {
    for (const KeyRule& rule : zero_key_rules()) {
      const Value* value = rule.of == of ? given_key(given_, rule.key) : nullptr;
      if (value && !(*value == rule.quiet)) say(rule, *value);
    }
  }

  const Value given_;
  PlanContext& ctx_;
};

}  // namespace

void report_keys(const ZeroOptions& options, PlanContext& ctx) {
  const int64_t stage = options.stage.value_or(0);
  KeyReport report(options, ctx);
  if (stage == 0) return options.stage ? report.name_all() : void();
  report.refuse();
  report.name_idle();
  if (stage < 3)
    report.name_gathers(kStage3Only);
  else if (shares_nothing(options))
    report.name_gathers("groups of 1 share nothing out; every rank holds all parameters");
  if (stage == 3 && options.allgather_bucket_size)
    ctx.no_effect("allgather_bucket_size", "at stage 3 the buckets have reduce_bucket_size elements");
}

}  // namespace drivetrain
