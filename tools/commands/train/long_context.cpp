#include "train/long_context.h"

#include <algorithm>

#include <drivetrain/toolkit/text.h>

#include "base/value_error.h"
#include "config_files/layers.h"
#include "contract/device_runtime.h"
#include "device/open_device.h"
#include "findings/limits.h"

namespace drivetrain {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr const char* kData =
#include "long_context.inc"
    ;

// As the hardware files of GPUs have it: the context, NCCL's buffers of a group, and what the allocator cannot use.
DeviceCapacity capacity(double bytes, bool gpu) {
  return gpu ? DeviceCapacity{bytes, 0.5 * kGiB, 0.4 * kGiB, 0.03} : DeviceCapacity{bytes, 0, 0, 0};
}

const Value* given(const Value& config, const std::string& key) {
  const Value* const value = config.find(key);
  return value && !value->is_null() ? value : nullptr;
}

bool is_off(const Value& section) { return section.is_bool() && !section.as_bool(); }

// Of a section of options: those that the config's has not.
Value open_options(const std::string& key, const Value& options, const Value& section) {
  if (is_off(section))
    throw ValueError(section.where,
                     concat(key, " is false, and long_context may have to set ", options.to_json(), " there\n   leave ",
                            key, " out or say those options in it, or leave out long_context"));
  const Value* const params = section.find("params");
  Value open = Value::object();
  for (const Value::Member& m : options.members())
    if (!(params ? params : &section)->find(m.key)) open.set(m.key, m.value);
  return open;
}

// `sections` without what the config says itself: a section with a type as a whole, others option by option.
Value open_sections(const Value& sections, const Value& config) {
  Value open = Value::object();
  for (const Value::Member& m : sections.members()) {
    const Value* const own = given(config, m.key);
    if (!own) open.set(m.key, m.value);
    if (!own || m.value.find("type")) continue;
    if (Value options = open_options(m.key, m.value, *own); !options.members().empty()) open.set(m.key, options);
  }
  return open;
}

// One thing to try.
struct Choice {
  Value sections;     // over the config
  int64_t ranks = 1;  // that share a sequence
};

// How ranks share a sequence; no types where the config says it.
class Sharing {
 public:
  Sharing(const Value& data, const Value& config)
      : section_(data.find("section")->as_string()), option_(data.find("option")->as_string()) {
    bool said = given(config, section_) != nullptr;
    for (const Value& other : data.find("sections")->items()) said = said || given(config, other.as_string());
    if (!said) types_ = data.find("types")->items();
  }

  // `sections` with so many ranks, in the order in which types are tried.
  void add(std::vector<Choice>& list, const Value& sections, int64_t ranks) const {
    if (ranks == 1) return list.push_back({sections, 1});
    for (const Value& type : types_) {
      Value section = Value::object(), params = Value::object(), all = sections;
      params.set(option_, ranks);
      section.set("type", type), section.set("params", std::move(params));
      all.set(section_, std::move(section));
      list.push_back({std::move(all), ranks});
    }
  }

 private:
  const std::string section_, option_;
  Value::Array types_;
};

// From the cheapest on. Hosts share a sequence where nothing else fits.
std::vector<Choice> choices(const Value& config, const LongContextMachine& machine, const std::string& device) {
  const Value data = parse_json(kData, "configs/planner/long_context.json");
  const Sharing sharing(*data.find("sharing"), config);
  std::vector<Choice> list;
  Value last;
  for (const Value& choice : data.find("choices")->items()) {
    const Value* const only = choice.find("device");
    if (only && only->as_string() != device) continue;
    const Value sections = open_sections(*choice.find("set"), config);
    if (!list.empty() && sections == last) continue;
    last = sections;
    for (int64_t n = 1; n <= machine.ranks_per_host; n *= 2) sharing.add(list, sections, n);
  }
  int64_t beyond = 1;
  while (beyond <= machine.ranks_per_host) beyond *= 2;
  for (; beyond <= machine.ranks; beyond *= 2) sharing.add(list, last, beyond);
  return list;
}

struct Need {
  double device = 0, host = 0;
};

Need need_of(const RunPlan& plan, const LongContextMachine& machine) {
  Need need;
  for (const PlannedMemory& stage : memory_by_stage(plan, machine.device)) {
    need.device = std::max(need.device, stage.on_device());
    need.host = std::max(need.host, stage.on_host() * static_cast<double>(machine.ranks_per_host));
  }
  return need;
}

std::string gib(double bytes) { return formatted(bytes < 10 * kGiB ? "%.3g GiB" : "%.1f GiB", bytes / kGiB); }

class Search {
 public:
  Search(const Value& config, const LongContextMachine& machine, const PlanConfig& plan)
      : config_(config), machine_(machine), plan_(plan) {
    if (const Value* const batch = config.find("train_batch_size"); batch && batch->is_int()) batch_ = batch->as_int();
  }

  LongContextChoice choose(const std::string& device) {
    for (const Choice& choice : choices(config_, machine_, device)) {
      if (choice.ranks > 1 && choice.ranks == planned_ranks_) continue;  // by another type, which was accepted
      planned_ranks_ = 0;
      if (try_one(choice)) return found_;
    }
    if (!least_) throw fail(ErrorCode::config, refusal_);
    const bool host = machine_.host > 0 && least_->host > machine_.host;
    throw fail(ErrorCode::out_of_memory, "long_context: no choice fits. With ", least_sections_.to_json(),
               " a rank needs ", gib(least_->device), " of ", gib(machine_.device.bytes),
               host ? concat(" and its host ", gib(least_->host), " of ", gib(machine_.host)) : "",
               "\n   take more ranks or a shorter sequence, or share out or offload the state: zero_optimization with "
               "stage 3, offload_optimizer and offload_param");
  }

 private:
  bool try_one(const Choice& choice) {
    const Value sections = with_batch(choice);
    std::unique_ptr<PreparedRun> run;
    try {
      run = plan_(merged_configs(config_, sections));
    } catch (const Error& e) {
      if (e.code() != ErrorCode::config) throw;
      if (refusal_.empty()) refusal_ = e.what();
      return false;
    }
    planned_ranks_ = choice.ranks;
    if (!batch_) batch_ = run->plan.batch.train_batch_size;
    const Need need = need_of(run->plan, machine_);
    if (sections.members().empty()) unchanged_ = need;
    const bool fits = need.device <= machine_.device.bytes && (machine_.host == 0 || need.host <= machine_.host);
    if (fits) return settle(sections, need, run->plan.data.seq_length), true;
    if (!least_ || need.device < least_->device) least_ = need, least_sections_ = sections;
    return false;
  }

  // The rows of a step stay, whoever shares a sequence.
  Value with_batch(const Choice& choice) const {
    Value sections = choice.sections;
    if (batch_ && choice.ranks > 1)
      sections.set("train_batch_size", *batch_), sections.set("gradient_accumulation_steps", Value());
    return sections;
  }

  void settle(const Value& sections, const Need& need, int64_t length) {
    found_.sections = sections;
    const Value* const key = config_.find("long_context");
    const Position where = key ? key->where : Position{};
    const std::string why =
        concat("long_context: sequences of ", length, " take ", gib(need.device), " of ", gib(machine_.device.bytes),
               " per rank", unchanged_ && !sections.members().empty() ? "; without, " + gib(unchanged_->device) : "");
    if (sections.members().empty()) found_.settled.push_back({where, "long_context", "nothing", why});
    for (const Value::Member& m : sections.members())
      if (!m.value.is_null()) found_.settled.push_back({where, m.key, m.value.to_json(), why});
  }

  const Value& config_;
  const LongContextMachine& machine_;
  const PlanConfig& plan_;
  std::optional<int64_t> batch_;
  std::optional<Need> unchanged_, least_;
  Value least_sections_;
  std::string refusal_;
  int64_t planned_ranks_ = 0;  // of the choice before, if it was accepted
  LongContextChoice found_;
};

}  // namespace

std::optional<LongContextMachine> machine_at_hand(const RunSettings& settings, const RankEnvironment& env) {
  LongContextMachine machine{.ranks = env.world_size, .ranks_per_host = env.local_size};
  const double host = memory_limits().most(), told = settings.long_sequences.memory_gib * kGiB;
  DeviceRuntime* const runtime = device_runtime();
  if (settings.device == "cpu") {
    machine.device = capacity(told > 0 ? told : host / static_cast<double>(env.local_size), false);
  } else if (told > 0) {
    machine.device = capacity(told, true), machine.host = runtime ? host : 0;
  } else if (runtime) {
    const DeviceFacts facts = runtime->facts(device_index(env.local_rank, env.local_size));
    machine.device = capacity(static_cast<double>(facts.memory_bytes), true), machine.host = host;
  } else {
    return {};
  }
  return machine;
}

LongContextChoice choose_long_context(const Value& config, const LongContextMachine& machine, const PlanConfig& plan) {
  const Value* const device = config.find("device");
  return Search(config, machine, plan).choose(device && device->is_string() ? device->as_string() : "cpu");
}

}  // namespace drivetrain
