#include "launch/dry_run.h"

#include <cstdlib>
#include <filesystem>

#include "base/rank_variables.h"
#include "launch/host_connection.h"
#include "launch/rank_log.h"
#include "launch/starter_command.h"
#include "launch/visible_devices.h"

namespace drivetrain::program {
namespace {

struct DryRank {
  int rank = 0, local = 0;
};

// NAME='VALUE': a shell reads no variable in a quoted NAME=VALUE.
std::string shell_assignment(const std::string& entry) {
  const size_t equals = entry.find('=');
  return entry.substr(0, equals + 1) + shell_quoted(entry.substr(equals + 1));
}

std::string rank_line(const LaunchRequest& request, const Host& host, const DryRank& rank) {
  const HostsRequest& hosts = request.hosts;
  const bool alone = hosts.hosts.size() < 2 && !hosts.over_ssh;
  const std::string first = hosts.hosts.empty() ? "localhost" : hosts.hosts.front().name;
  std::string line = "cd " + shell_quoted(std::filesystem::current_path()) + " && env";
  for (const std::string& entry : hosts.environment) line += " " + shell_assignment(entry);
  // Whether that host has CUDA_VISIBLE_DEVICES of its own is known there only.
  const char* const visible = hosts.over_ssh ? nullptr : std::getenv("CUDA_VISIBLE_DEVICES");
  check_slots(host.slots, visible);
  std::string devices = devices_of_slots(host.slots, visible);
  if (const std::string own = own_device(devices.empty() && visible ? visible : devices, rank.local); !own.empty())
    devices = own;
  if (!devices.empty()) line += " CUDA_VISIBLE_DEVICES=" + devices;
  line += " RANK=" + std::to_string(rank.rank) + " LOCAL_RANK=" + std::to_string(rank.local) +
          " WORLD_SIZE=" + std::to_string(request.ranks) + " LOCAL_WORLD_SIZE=" + std::to_string(host.slots.size());
  line += " MASTER_ADDR=" + (!hosts.master_addr.empty() ? shell_quoted(hosts.master_addr)
                             : alone                    ? "127.0.0.1"
                                                        : "<address of " + first + " by route>");
  line += " MASTER_PORT=" + (hosts.master_port != 0 ? std::to_string(hosts.master_port) : "<free port>");
  if (request.setup.bind_cores) line += " OMP_NUM_THREADS=<its cores> DRIVETRAIN_BOUND_CORES=<its cores>";
  std::vector<std::string> command = request.command;
  if (!request.resume.empty()) command.insert(command.end(), {"--resume", request.resume});
  line += " " + shell_line(command);
  return request.setup.has_logs() ? line + " >> " + shell_quoted(log_path(request.setup, rank.rank)) + " 2>&1" : line;
}

// The agents start the ranks, whose lines follow.
std::string starter_line(const LaunchRequest& request, const std::string& program) {
  const int tasks = request.only_rank_0 ? 1 : request.ranks;
  return std::string("launcher: env ") + kTaskVariable + "=<key and address of this launch> " + RankStart::kToken +
         "=<secret> " + shell_line(starter_command(request.hosts, tasks, {program, "agent"})) + "\n";
}

}  // namespace

std::string dry_run_text(const LaunchRequest& request) {
  if (!request.hosts.submit.empty()) return request.hosts.script;
  std::vector<Host> hosts = request.hosts.hosts;
  if (hosts.empty()) {
    hosts.push_back({"localhost", {}});
    for (int slot = 0; slot < request.ranks; ++slot) hosts.back().slots.push_back(slot);
  }
  std::string text;
  if (!request.hosts.starter.empty()) text = starter_line(request, request.command.front());
  int rank = 0;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const Host& host = hosts[i];
    const int slots = static_cast<int>(host.slots.size());
    const bool here = request.hosts.over_ssh || static_cast<int>(i) == request.hosts.node_rank;
    if (request.hosts.over_ssh && request.hosts.starter.empty())
      text += "launcher: " + shell_line(ssh_command(request.hosts, host.name, request.command.front())) + "\n";
    for (int local = 0; local < slots && here; ++local)
      if (!request.only_rank_0 || rank + local == 0)
        text += host.name + ": " + rank_line(request, host, {rank + local, local}) + "\n";
    rank += slots;
  }
  return text;
}

}  // namespace drivetrain::program
