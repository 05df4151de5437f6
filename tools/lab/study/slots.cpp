#include "study/slots.h"

#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "base/printable.h"
#include "cli/usage_error.h"
#include "launch/core_binding.h"
#include "launch/host_list.h"
#include "launch/meeting.h"

namespace drivetrain::study {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_slots(const StudyFile& study, const std::string& why) {
  throw fail(ErrorCode::config, study.path, ": \"dispatch\": ", why);
}

std::vector<int> cpus_of(const program::RankCores& part) {
  std::vector<int> cpus = part.cpus;
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

// Equal parts of all cores that this process may use, whole on a NUMA node where that is possible.
std::vector<Slot> equal_parts(const StudyFile& study, hwloc_topology* topology,
                              const std::vector<std::string>& devices) {
  const auto count = static_cast<size_t>(study.dispatch.slots);
  const int cores = program::cores_of_ranks(topology, {}, {""}).front().cores;
  if (static_cast<int64_t>(cores) < study.dispatch.slots)
    refuse_slots(study, concat(count, " slots and ", cores, cores == 1 ? " core" : " cores",
                               " that the study may use\n   every slot needs a core of its own: at most {\"slots\": ",
                               cores, "}"));
  const size_t each = devices.size() / count;
  std::vector<std::string> near(count);
  for (size_t i = 0; each > 0 && i < count; ++i) near[i] = program::cpus_near_gpus({devices[i * each]}).front();
  std::vector<Slot> slots;
  for (const program::RankCores& part : program::cores_of_ranks(topology, {}, near)) {
    Slot slot{.cpus = cpus_of(part)};
    const auto from = devices.begin() + static_cast<std::ptrdiff_t>(slots.size() * each);
    slot.devices = join(std::vector<std::string>(from, from + static_cast<std::ptrdiff_t>(each)), ",");
    slots.push_back(std::move(slot));
  }
  return slots;
}

std::vector<int> listed_cpus(const StudyFile& study, hwloc_topology* topology, const std::string& text) {
  try {
    const std::vector<int> list = program::parse_core_list(text);
    program::cores_of_ranks(topology, list, {""});  // throws where one is not to be had
    return list;
  } catch (const UsageError&) {
    refuse_slots(study, "\"cores\" wants numbers of cores that grow, such as 0,2-4, found \"" + shown(text) + "\"");
  } catch (const program::HostError&) {
    refuse_slots(study, "a slot names the cores " + shown(text) + ", and the study may use " +
                            list_text_of(cpus_of(program::cores_of_ranks(topology, {}, {""}).front())));
  }
}

// Comparisons are between equals, and what two slots have is nobody's own.
void check_listed(const StudyFile& study, const std::vector<Slot>& slots) {
  std::set<std::string> cores, devices;
  const auto words = [](std::string list) {
    std::replace(list.begin(), list.end(), ',', ' ');
    std::istringstream stream(list);
    return std::vector<std::string>{std::istream_iterator<std::string>(stream), {}};
  };
  for (size_t i = 0; i < slots.size(); ++i) {
    for (const int cpu : slots[i].cpus)
      if (!cores.insert(concat(cpu)).second)
        refuse_slots(study, concat("core ", cpu, " is in slot ", i + 1,
                                   " and in one before it\n   slots share no cores, or they disturb each other"));
    const std::vector<std::string> own = words(slots[i].devices);
    for (const std::string& device : own)
      if (!devices.insert(device).second)
        refuse_slots(study, concat("device ", shown(device), " is in slot ", i + 1,
                                   " and in one before it\n   slots share no devices, or they disturb each other"));
    if (slots[i].cpus.size() != slots[0].cpus.size() || own.size() != words(slots[0].devices).size())
      refuse_slots(study, concat("slot ", i + 1, " has ", slots[i].cpus.size(), " cores and ", own.size(),
                                 " devices, the first one ", slots[0].cpus.size(), " and ",
                                 words(slots[0].devices).size(), "\n   cells are compared in slots of one size"));
  }
}

std::vector<program::Host> hosts_in(const std::string& hostfile, const std::string& path) {
  try {
    return program::read_hostfile(hostfile);
  } catch (const UsageError& e) {
    const std::string text = e.what(), before = "launch: ";
    throw fail(ErrorCode::config, path, ": \"hosts\": ", text.starts_with(before) ? text.substr(before.size()) : text);
  }
}

// The numbers of slots of a slot's hosts, in words.
std::string shape_of(const std::vector<program::Host>& hosts) {
  std::string text;
  for (const program::Host& host : hosts) text += (text.empty() ? "" : " + ") + concat(host.slots.size());
  return text + (hosts.size() > 1 ? " ranks on its hosts" : " ranks on its host");
}

std::string names_of(const std::vector<program::Host>& hosts) {
  std::vector<std::string> names;
  for (const program::Host& host : hosts) names.push_back(host.name);
  return join(names, ", ");
}

// Every slot is a hostfile. Runs of two slots never share a host.
std::vector<Slot> host_slots(const StudyFile& study) {
  std::vector<Slot> slots;
  std::vector<std::string> taken;
  std::string first;
  for (const Dispatch::Listed& one : study.dispatch.listed) {
    const std::vector<program::Host> hosts = hosts_in(one.hosts, study.path);
    for (const program::Host& host : hosts)
      for (const std::string& other : taken)
        if (program::same_host_name(host.name, other))
          refuse_slots(study, concat("the host ", shown(host.name), " of ", shown(one.hosts),
                                     " is in a slot before it\n   slots share no hosts, or they disturb each other"));
    for (const program::Host& host : hosts) taken.push_back(host.name);
    const std::string shape = shape_of(hosts);
    if (first.empty()) first = shape;
    if (shape != first)
      refuse_slots(study, concat(shown(one.hosts), " has ", shape, ", ", shown(study.dispatch.listed.front().hosts),
                                 " ", first, "\n   cells are compared in slots of one size"));
    slots.push_back({.hosts = one.hosts, .names = names_of(hosts)});
  }
  return slots;
}

// Entries of CUDA_VISIBLE_DEVICES, or else the numbers of the GPUs that NVIDIA's driver has.
std::vector<std::string> devices_here() {
  std::vector<std::string> list;
  if (const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    std::istringstream stream(visible);
    for (std::string one; std::getline(stream, one, ',') && one != "-1";) list.push_back(one);
    return list;
  }
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", none))
    if (!entry.path().empty()) list.push_back(concat(list.size()));
  return list;
}

}  // namespace

std::string list_text_of(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + concat(numbers[i]) + (last > i ? concat("-", numbers[last]) : "");
    i = last + 1;
  }
  return text;
}

std::vector<Slot> slots_of(const StudyFile& study, hwloc_topology* topology, const std::vector<std::string>& devices) {
  if (study.dispatch.slots <= 1 && study.dispatch.listed.empty()) return {Slot{}};
  if (study.dispatch.is_of_hosts()) return host_slots(study);
  std::vector<Slot> slots;
  for (const Dispatch::Listed& one : study.dispatch.listed)
    slots.push_back({.cpus = listed_cpus(study, topology, one.cores), .devices = one.devices});
  if (slots.empty())
    slots = equal_parts(study, topology, devices);
  else
    check_listed(study, slots);
  for (Slot& slot : slots) slot.cores = list_text_of(slot.cpus);
  return slots;
}

std::vector<Slot> slots_here(const StudyFile& study) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0 || hwloc_topology_load(topology) != 0)
    throw fail(ErrorCode::io, "study: hwloc cannot read the cores of this machine, which \"dispatch\" shares out");
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> owned(topology, hwloc_topology_destroy);
  return slots_of(study, topology, devices_here());
}

int64_t ranks_of_hostfile(const std::string& hostfile, const std::string& path) {
  return program::ranks_of(hosts_in(hostfile, path));
}

void check_ranks(const std::vector<CellPlan>& plans, const std::string& path) {
  for (const CellPlan& plan : plans) {
    if (plan.hosts.empty() || !plan.refusal.empty()) continue;
    if (const int64_t now = ranks_of_hostfile(plan.hosts, path); now != plan.world_size)
      throw fail(ErrorCode::config, path, ": ", shown(plan.hosts), " has ", now, now == 1 ? " slot" : " slots",
                 " now, and had ", plan.world_size,
                 " when the study began\n   runs of both would be taken for the same: put it back, or begin anew");
  }
}

void check_slots(const std::vector<Slot>& slots, const std::vector<Cell>& cells, const std::vector<CellPlan>& plans,
                 const std::string& path) {
  const bool has_slots = slots.size() > 1 || !slots.front().hosts.empty();
  for (size_t i = 0; has_slots && i < plans.size(); ++i) {
    const CellPlan& plan = plans[i];
    const std::string begin = path + ": \"dispatch\": the cell " + shown(cells[i].id);
    if (plan.names_hosts)
      throw fail(ErrorCode::config, begin, " runs on ", shown(plan.hosts),
                 ", and slots say where a run is\n   leave out \"dispatch\" or \"hosts\"");
    const std::string& devices = slots.front().devices;
    if (devices.empty()) continue;
    for (const std::string& variable : plan.environment)
      if (variable.starts_with("CUDA_VISIBLE_DEVICES="))
        throw fail(ErrorCode::config, begin,
                   " sets CUDA_VISIBLE_DEVICES, which slots decide\n   leave one of them out");
    const Value* const device = plan.resolved.find("device");
    const bool on_cpu = !device || !device->is_string() || device->as_string() == "cpu";
    const int64_t own = 1 + std::count(devices.begin(), devices.end(), ',');
    if (!on_cpu && plan.refusal.empty() && plan.world_size > own)
      throw fail(ErrorCode::config, begin, " has ", plan.world_size, " ranks, and a slot ", own,
                 own == 1 ? " device" : " devices", "\n   ask for fewer slots");
  }
}

}  // namespace drivetrain::study
