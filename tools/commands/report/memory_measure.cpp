#include "report/memory_measure.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include <drivetrain/toolkit/host.h>

#include "memory/cpu_allocator.h"
#include "observe/memory.h"
#include "rendezvous/gather_values.h"

namespace drivetrain {
namespace {

constexpr const char* kLooked = "memory/looked";  // all ranks have

// What one rank finds. Memory in shared mappings is listed, since only all ranks together know how many share it.
struct RankMemory {
  struct Shared {
    std::string place;
    int64_t memory_class = 0, bytes = 0;
  };
  MemoryTable states;
  double on_host = 0, on_device = 0;  // private states, by where they lie
  double in_allocator = 0;            // what the CPU's allocator counts for them
  std::vector<Shared> shared;
  std::string process;
  double allocator_peak = 0, shared_peak = 0, device_peak = 0, peak_memory = 0;
};

class StateWalk : public StateVisitor {
 public:
  explicit StateWalk(RankMemory& found) : found_(found) {}

  void add(const at::Tensor& tensor, MemoryClass memory_class) {
    if (!tensor.defined()) return;
    const at::Storage& storage = tensor.storage();
    const auto bytes = static_cast<int64_t>(storage.nbytes());
    if (bytes == 0 || !seen_.insert(storage.unsafeGetStorageImpl()).second) return;
    if (const std::string place = tensor.is_cpu() ? mappings_.place(storage.data()) : ""; !place.empty()) {
      found_.shared.push_back({place, static_cast<int64_t>(memory_class), bytes});
      return;
    }
    found_.states[memory_class] += static_cast<double>(bytes);
    (tensor.is_cpu() ? found_.on_host : found_.on_device) += static_cast<double>(bytes);
    if (tensor.is_cpu()) found_.in_allocator += static_cast<double>(cpu_memory_of(storage.data_ptr()));
  }

  void tensor(const std::string&, at::Tensor& t, const Layout&) override { add(t, MemoryClass::optimizer); }
  void integer(const std::string&, int64_t&) override {}
  void number(const std::string&, double&) override {}

 private:
  RankMemory& found_;
  const SharedMappings mappings_;
  std::set<const c10::StorageImpl*> seen_;
};

void walk_states(const Run& run, const RunState& state, RankMemory& found) {
  StateWalk walk(found);
  const std::vector<Trainables> held = all_values(run);
  const auto each = [&](const auto& visit) {
    for (const Trainables& chunk : held)
      for (const Trainable& t : chunk) visit(t);
  };
  for (const ParamPtr& param : run.units.all()) walk.add(param->tensor, MemoryClass::parameters);
  each([&](const Trainable& t) { walk.add(t.working, MemoryClass::parameters); });
  for (const ParamPtr& param : run.units.all()) walk.add(param->grad, MemoryClass::gradients);
  each([&](const Trainable& t) { walk.add(t.grad, MemoryClass::gradients); });
  each([&](const Trainable& t) { walk.add(t.device_grad, MemoryClass::gradients); });
  std::set<std::string> strategies;  // their state is what they add to the optimizer's: averages, scales
  for (const NamedStrategy& strategy : run.plugins.strategies) strategies.insert(strategy.id);
  for (const StateOwner& owner : state)
    if (owner.changes == StateOwner::Changes::at_update || strategies.contains(owner.name)) owner.visit(walk);
}

// Unique over hosts and processes; ranks that are threads have the same.
std::string process_name() { return concat(boot_id(), "/", getpid()); }

RankMemory look_at_memory(const Run& run, const RunState& state) {
  RankMemory found;
  walk_states(run, state, found);
  found.process = process_name();
  found.allocator_peak = static_cast<double>(cpu_memory().peak_in_use);
  found.shared_peak = shared_memory_bytes();
  if (DeviceRuntime* runtime = run.device_runtime()) {
    found.device_peak = static_cast<double>(runtime->memory(run.services->device).peak_allocated);
  }
  found.peak_memory = peak_memory_bytes();
  return found;
}

Value memory_facts(const RankMemory& found) {
  Value bytes = Value::array(), shared = Value::array(), figures = Value::array();
  for (const double b : found.states.bytes) bytes.items().push_back(b);
  for (const double f : {found.on_host, found.on_device, found.in_allocator, found.allocator_peak, found.shared_peak,
                         found.device_peak, found.peak_memory})
    figures.items().push_back(f);
  for (const RankMemory::Shared& s : found.shared)
    shared.items().push_back(Value::Array{s.place, s.memory_class, s.bytes});
  Value value = Value::object();
  value.set("process", found.process);
  value.set("states", bytes);
  value.set("figures", figures);
  value.set("shared", shared);
  return value;
}

RankMemory memory_of_facts(const Value& value) {
  RankMemory found;
  found.process = value.find("process")->as_string();
  for (size_t c = 0; c < found.states.bytes.size(); ++c)
    found.states.bytes[c] = value.find("states")->items().at(c).as_double();
  size_t i = 0;
  for (double* f : {&found.on_host, &found.on_device, &found.in_allocator, &found.allocator_peak, &found.shared_peak,
                    &found.device_peak, &found.peak_memory})
    *f = value.find("figures")->items().at(i++).as_double();
  for (const Value& s : value.find("shared")->items())
    found.shared.push_back({s.items().at(0).as_string(), s.items().at(1).as_int(), s.items().at(2).as_int()});
  return found;
}

// The ranks of one process share its allocator and its mappings.
struct SharedProcess {
  double ranks = 0, in_allocator = 0, shared_states = 0;
};

std::vector<MeasuredMemory> put_together(const std::vector<RankMemory>& all, bool on_device) {
  std::map<std::string, double> holders;  // of a place in shared memory
  for (const RankMemory& found : all)
    for (const RankMemory::Shared& s : found.shared) ++holders[s.place];
  std::map<std::string, SharedProcess> processes;
  std::vector<MeasuredMemory> ranks;
  for (const RankMemory& found : all) {
    MeasuredMemory& rank = ranks.emplace_back();
    rank.bytes = found.states.bytes;
    rank.peak_memory = found.peak_memory;
    double shared = 0;
    for (const RankMemory::Shared& s : found.shared) {
      const double part = static_cast<double>(s.bytes) / holders[s.place];
      rank.bytes.at(static_cast<size_t>(s.memory_class)) += part;
      shared += part;
    }
    if (on_device) rank.states_on_host = found.on_host + shared;
    SharedProcess& process = processes[found.process];
    ++process.ranks, process.in_allocator += found.in_allocator, process.shared_states += shared;
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const SharedProcess& process = processes[all[i].process];
    const double host = std::max(0.0, all[i].allocator_peak - process.in_allocator) +
                        std::max(0.0, all[i].shared_peak - process.shared_states);
    ranks[i][MemoryClass::buffers] =
        on_device ? std::max(0.0, all[i].device_peak - all[i].on_device) : host / process.ranks;
  }
  return ranks;
}

}  // namespace

std::vector<MeasuredMemory> measure_memory(const Run& run, const RunState& state, const RankEnvironment& env,
                                           double timeout_s) {
  const std::vector<Value> facts =
      gather_values(*run.store, "memory", env, memory_facts(look_at_memory(run, state)), timeout_s);
  if (env.rank != 0) {
    // Who leaves takes its share of the mappings along. Rank 0 may wait as long for others, and then says for whom.
    values_of_ranks(
        *run.store, {0}, [](int64_t) { return kLooked; }, "look at the ranks' memory", timeout_s + 2);
    return {};
  }
  if (env.world_size > 1) run.store->set(kLooked, "yes");
  std::vector<RankMemory> all;
  for (const Value& value : facts) all.push_back(memory_of_facts(value));
  return put_together(all, !run.services->device.is_cpu());
}

}  // namespace drivetrain
