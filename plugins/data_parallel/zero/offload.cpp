// What lives in the host's memory. On the CPU everything does, so the sections change nothing there.
//
// Source: Ren et al. 2021, "ZeRO-Offload: Democratizing Billion-Scale Model Training", section 4.
#include <set>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/not_recorded.h>

#include "plan.h"

namespace drivetrain {
namespace {

// One of the two sections, as it was given.
struct Section {
  std::string name;
  std::string old_switch;  // DeepSpeed's key before there were sections
  const char* whose;
  bool stage3_only;
};

const Section kState{"offload_optimizer", "cpu_offload", "optimizer state is", false};
const Section kValues{"offload_param", "cpu_offload_param", "parameters are", true};

const std::set<std::string> kActedOn = {"device", "pin_memory", "ratio", "super_offload"};

class Offload {
 public:
  Offload(const ZeroOptions& options, PlanContext& ctx)
      : stage_(*options.stage), given_(zero_table().to_value(&options)), ctx_(ctx) {}

  // Does the host hold what the section is about, elsewhere than the run's device?
  bool wanted(const Section& section) {
    const Value* device = given_key(*given_.find(section.name), "device");
    const Value* old = given_key(given_, section.old_switch);
    if (old && device)
      return refused(section.old_switch, " = ", old->to_json(), " and ", section.name, ".device = ", device->to_json(),
                     " are the old and the new name of the same, which DeepSpeed refuses together; remove ",
                     section.old_switch);
    if (old)
      ctx_.cost(concat(section.old_switch, " is the old name of ", section.name, ": ", old->to_json(), " is read as ",
                       "\"device\": \"", old->as_bool() ? "cpu" : "none", "\""));
    const std::string where = device ? device->as_string() : old && old->as_bool() ? "cpu" : "none";
    const std::string key = device ? section.name + ".device" : section.old_switch;
    if (where == "none") return without_device(section);
    if (section.stage3_only && stage_ < 3) {
      ctx_.no_effect(section.name, concat("parameters are sharded at stage 3; found stage ", stage_));
      return false;
    }
    if (where == "nvme")
      return refused(key, " = \"nvme\" is not in this version: nothing is kept on disks; use \"cpu\" or \"none\"");
    if (ctx_.run().device != "cpu") {
      ctx_.offer(concat(toolkit::kNotRecorded, key, " puts into the host's memory what each step copies or updates ",
                        "there; leave it out"));
      return true;
    }
    ctx_.no_effect(section.name, concat("the run is on the CPU: ", section.whose, " in host memory already"));
    return false;
  }

  void check_updates(const OffloadOptimizer& o) {
    if (o.ratio.value_or(1) < 1)
      refused("offload_optimizer.ratio = ", *o.ratio,
              " is not in this version: all updates are done on the CPU; remove it");
    if (o.super_offload.value_or(false))
      refused("offload_optimizer.super_offload is not in this version: an update waits for the norm; remove it");
  }

  // The other keys that were given.
  void name_idle(const Section& section) {
    for (const Value::Member& m : given_.find(section.name)->members())
      if (!m.value.is_null() && !kActedOn.contains(m.key))
        ctx_.no_effect(concat(section.name, ".", m.key),
                       "a rank's part of a bucket is copied as it is, and nothing is kept on disks");
  }

 private:
  template <class... Parts>
  bool refused(const Parts&... parts) {
    ctx_.refuse(concat(parts...));
    return false;
  }

  bool without_device(const Section& section) {
    for (const Value::Member& m : given_.find(section.name)->members())
      if (m.key != "device" && !m.value.is_null()) {
        ctx_.no_effect(section.name, "its \"device\" is \"none\", and nothing is kept elsewhere");
        break;
      }
    return false;
  }

  const int64_t stage_;
  const Value given_;
  PlanContext& ctx_;
};

}  // namespace

void choose_offload(const ZeroOptions& options, ShardingOptions& sharding, PlanContext& ctx) {
  Offload offload(options, ctx);
  sharding.offload_state = offload.wanted(kState);
  sharding.offload_values = offload.wanted(kValues);
  if (sharding.offload_state) offload.check_updates(options.offload_optimizer), offload.name_idle(kState);
  if (sharding.offload_values) offload.name_idle(kValues);
  const bool state = options.offload_optimizer.pin_memory.value_or(true),
             values = options.offload_param.pin_memory.value_or(true);
  if (sharding.offload_state && sharding.offload_values && state != values)
    ctx.refuse(
        "offload_optimizer.pin_memory and offload_param.pin_memory differ, and there is one setting in this version; "
        "make them equal");
  sharding.pinned = sharding.offload_state ? state : values;
}

}  // namespace drivetrain
