#include "launch/hosts_request.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/printable.h"
#include "cli/parse.h"
#include "launch/elastic.h"
#include "launch/environment.h"
#include "launch/host_pool.h"
#include "launch/starter_command.h"
#include "launch/starter_request.h"
#include "launch/this_host.h"

namespace drivetrain::program {
namespace {

// What DeepSpeed's --launcher takes, and why it is not here.
struct OtherStarter {
  const char *name, *reason;
};
constexpr OtherStarter kOtherStarters[] = {
    {"pdsh", "ssh reaches all hosts at once by itself; leave --launcher out"},
    {"impi", "use --launcher mpich, which starts ranks by mpiexec.hydra as Intel's MPI does"},
    {"mvapich", "use --launcher mpich, which starts ranks by mpiexec.hydra as MVAPICH does"},
    {"jsrun", "not in this version"}};

class HostsReader {
 public:
  explicit HostsReader(const cli::Arguments& arguments) : given_(arguments) {}

  HostsRequest read() {
    read_starter();
    read_schedulers(given_, own_start_, request_);
    if (!request_.submit.empty()) return std::move(request_);
    if (!request_.started_by.empty()) {
      request_.environment = environment_of_option(given_.all("--env"));
      return std::move(request_);
    }
    if (request_.hosts.empty()) request_.hosts = hosts(), request_.hostfile = given_.text("--hostfile");
    const bool several = request_.hosts.size() > 1;
    const bool far = several || (!request_.hosts.empty() && !is_this_host(request_.hosts.front().name));
    request_.over_ssh = !own_start_ && (far || given_.has("--force_multi") || !request_.starter.empty());
    check_own_start();
    check_ssh_options();
    read_meeting();
    if (!request_.starter.empty()) refuse_with_starter();
    if (restarts_of(given_) > 0 && own_start_ && several)
      refuse((given_.has("--max-restarts") ? std::string("--max-restarts") : "--elastic_training") +
             ": who starts the ranks of each host by itself starts them again; with ssh, launch does");
    read_spares();
    if (given_.has("--copy") && !request_.over_ssh)
      refuse("--copy goes with a run over ssh: --hostfile FILE with other hosts, or --force_multi");
    if (given_.has("--copy") && given_.text("--copy").empty()) refuse("--copy wants the name of a folder, got nothing");
    request_.copy_folder = given_.text("--copy");
    if (request_.over_ssh) request_.environment = environment_taken_along();
    for (const std::string& entry : environment_of_option(given_.all("--env"))) request_.environment.push_back(entry);
    request_.dry_run = given_.has("--dry-run");
    return std::move(request_);
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const { cli::refuse(given_.command(), problem); }

  void read_starter() {
    const std::string name = launcher_named(given_);
    for (const OtherStarter& other : kOtherStarters)
      if (name == other.name) refuse("--launcher " + name + ": " + other.reason);
    if (name != "ssh" && name != "none" && !is_starter(name))
      refuse("--launcher wants ssh, slurm, openmpi, mpich or none, got \"" + shown(given_.text("--launcher")) + "\"");
    own_start_ = name == "none" || given_.has("--no_ssh");
  }

  int per_host() const { return given_.has("-n") ? static_cast<int>(given_.whole("-n")) : 0; }
  int nodes() const { return given_.has("--num_nodes") ? static_cast<int>(given_.whole("--num_nodes")) : 0; }

  std::vector<Host> hosts() {
    const bool filtered = given_.has("--include") || given_.has("--exclude");
    if (filtered && (per_host() > 0 || nodes() > 0))
      refuse(std::string(given_.has("--include") ? "--include" : "--exclude") +
             " says which slots are used; leave out " + (per_host() > 0 ? "-n" : "--num_nodes"));
    if (!given_.has("--hostfile")) return hosts_without_file();
    const std::vector<Host> all = read_hostfile(given_.text("--hostfile"));
    if (given_.has("--include")) return include_hosts(all, given_.text("--include"));
    if (given_.has("--exclude")) return exclude_hosts(all, given_.text("--exclude"));
    if (nodes() > 0 && given_.has("--max_elastic_nodes")) keep_for_later(all);
    return first_hosts(all, nodes(), per_host());
  }

  // Of those that --num_nodes leaves out.
  void keep_for_later(const std::vector<Host>& all) {
    const size_t begin = std::min(all.size(), static_cast<size_t>(nodes()));
    const size_t end = std::min(all.size(), static_cast<size_t>(given_.whole("--max_elastic_nodes")));
    if (end > begin) left_out_ = first_hosts({all.begin() + begin, all.begin() + end}, 0, per_host());
  }

  // DeepSpeed's `--include localhost:1,3` on one machine, and --num_nodes where each node starts its own.
  std::vector<Host> hosts_without_file() const {
    if (given_.has("--exclude"))
      refuse(
          "--exclude goes with --hostfile FILE; without one, --include localhost:1,2 says which GPUs of this host are "
          "used");
    if (given_.has("--include")) return slots_of_this_host();
    if (nodes() > 1 && !own_start_)
      refuse("--num_nodes " + std::to_string(nodes()) +
             " needs --hostfile FILE, which names the hosts, or --no_ssh "
             "with --node_rank on each of them");
    if (nodes() <= 1 && !given_.has("--node_rank") && !given_.has("--force_multi")) return {};
    std::vector<Host> list(static_cast<size_t>(std::max(1, nodes())));
    for (size_t i = 0; i < list.size(); ++i) {
      list[i].name = list.size() == 1 ? "localhost" : "node " + std::to_string(i);
      list[i].slots.resize(static_cast<size_t>(std::max(1, per_host())));
      std::iota(list[i].slots.begin(), list[i].slots.end(), 0);
    }
    return list;
  }

  std::vector<Host> slots_of_this_host() const {
    const auto filters = parse_host_filter(given_.text("--include"), "--include");
    if (filters.size() != 1 || !is_this_host(filters.front().name))
      refuse("--include of other hosts goes with --hostfile FILE, which says how they are reached");
    if (filters.front().slots.empty()) refuse("--include " + filters.front().name + " says no slots; use -n N");
    return {{filters.front().name, filters.front().slots}};
  }

  void check_own_start() {
    if (given_.has("--node_rank") && !own_start_) refuse("--node_rank goes with --no_ssh");
    if (!own_start_) return;
    const size_t count = std::max<size_t>(1, request_.hosts.size());
    if (given_.has("--no_ssh") && !given_.has("--node_rank"))
      refuse("--no_ssh: which of the hosts is this? Give --node_rank, from 0 to " + std::to_string(count - 1));
    if (!given_.has("--node_rank") && count > 1)
      refuse("--launcher none starts the ranks of one host: which of " + hosts_text(count) +
             " is this? Give --node_rank");
    if (!given_.has("--node_rank")) return;
    request_.node_rank = static_cast<int>(given_.whole("--node_rank"));
    if (request_.node_rank >= static_cast<int>(count))
      refuse("--node_rank " + std::to_string(request_.node_rank) + ": the run has " + hosts_text(count) +
             ", counted from 0");
    if (count > 1 && (!given_.has("--master_addr") || !given_.has("--master_port")))
      refuse(
          "--no_ssh needs --master_addr, an address of node 0, and --master_port, a port that is free there: nobody "
          "can tell the hosts of each other");
  }

  void check_ssh_options() {
    for (const char* option : {"--ssh_port", "--launcher_args"})
      for (const auto& one : given_.given())
        if (one.name == option && (!request_.over_ssh || (one.name == "--ssh_port" && !request_.starter.empty())))
          refuse(std::string(option) + " goes with a run over ssh: --hostfile FILE with other hosts, or --force_multi");
    request_.ssh_port = given_.has("--ssh_port") ? static_cast<int>(given_.whole("--ssh_port")) : 0;
    request_.launcher_args = shell_words(given_.text("--launcher_args"), "--launcher_args");
  }

  // It places and binds the tasks, and has started all of them or none.
  void refuse_with_starter() const {
    const std::string restarts = "not in this version for a run that " + request_.starter_program + " starts";
    const std::string binding = request_.starter_program + " binds the tasks that it starts: --launcher_args \"" +
                                (request_.starter == "slurm"   ? "--cpu-bind=cores"
                                 : request_.starter == "mpich" ? "-bind-to core"
                                                               : "--bind-to core") +
                                "\" says how";
    if (restarts_of(given_) > 0)
      refuse((given_.has("--max-restarts") ? "--max-restarts: " : "--elastic_training: ") + restarts);
    if (given_.has("--spare")) refuse("--spare: " + restarts);
    if (given_.has("--copy")) refuse("--copy: " + restarts);
    if (given_.has("--bind_cores_to_rank")) refuse("--bind_cores_to_rank: " + binding);
  }

  void read_spares() {
    request_.spares = left_out_;
    if (!given_.has("--spare")) return;
    if (restarts_of(given_) == 0) refuse("--spare goes with --max-restarts N, N at least 1");
    if (!request_.over_ssh)
      refuse("--spare goes with a run over ssh: --hostfile FILE with other hosts, or --force_multi");
    std::vector<Host> known = request_.hosts;
    known.insert(known.end(), left_out_.begin(), left_out_.end());
    for (Host& spare : parse_spares(given_.text("--spare"), known)) request_.spares.push_back(std::move(spare));
  }

  void read_meeting() {
    request_.master_addr = given_.text("--master_addr");
    if (given_.has("--master_addr") && request_.master_addr.empty())
      refuse("--master_addr wants an address or name of rank 0's host, got nothing; without it one is found by route");
    if (const std::string problem = host_name_problem(request_.master_addr);
        given_.has("--master_addr") && !problem.empty())
      refuse("--master_addr: " + problem);
    request_.master_port = given_.has("--master_port") ? static_cast<int>(given_.whole("--master_port")) : 0;
  }

  const cli::Arguments& given_;
  HostsRequest request_;
  std::vector<Host> left_out_;  // of the hostfile, to take part later
  bool own_start_ = false;
};

}  // namespace

HostsRequest hosts_request(const cli::Arguments& arguments) { return HostsReader(arguments).read(); }

}  // namespace drivetrain::program
