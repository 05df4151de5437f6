#include "launch/starter_request.h"

#include <cctype>
#include <filesystem>
#include <numeric>

#include "base/printable.h"
#include "cli/parse.h"
#include "launch/allocation.h"
#include "launch/batch_script.h"
#include "launch/command_output.h"

namespace drivetrain::program {
namespace {

class SchedulersReader {
 public:
  SchedulersReader(const cli::Arguments& given, bool own_start, HostsRequest& request)
      : given_(given), own_start_(own_start), request_(request) {}

  void read() {
    if (given_.has("--launcher") && is_starter(launcher_named(given_))) request_.starter = launcher_named(given_);
    if (given_.has("--submit") && (!given_.has("--launcher") || request_.starter == "slurm")) return read_submission();
    if (says_nothing_of_hosts() && !given_.has("--dry-run")) {
      request_.started_by = started_by(variable_of_process);
      if (!request_.started_by.empty()) return refuse_of_launcher();
    }
    if (!own_start_ && !given_.has("--hostfile")) read_job();
    check_options_of_slurm();
    if (request_.starter == "slurm" && request_.hosts.empty()) refuse_no_job();
    if (request_.starter.empty()) return;
    if (request_.hosts.empty() && !given_.has("--hostfile")) request_.hosts = ranks_of_this_host();
    request_.starter_program = starter_program(request_.starter);
    request_.comment = given_.text("--comment"), request_.account = given_.text("--account");
    if (given_.has("--no_ssh")) refuse("--no_ssh and --launcher " + request_.starter + " exclude each other");
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const { cli::refuse(given_.command(), problem); }

  int per_host() const { return given_.has("-n") ? static_cast<int>(given_.whole("-n")) : 0; }

  bool says_nothing_of_hosts() const {
    for (const auto& one : given_.given())
      for (const char* option : {"-n", "--hostfile", "--include", "--exclude", "--num_nodes", "--launcher", "--no_ssh",
                                 "--node_rank", "--force_multi", "--master_addr", "--master_port"})
        if (one.name == option) return false;
    return true;
  }

  // There is no launcher then that could do what they say.
  void refuse_of_launcher() const {
    for (const auto& one : given_.given())
      for (const char* option :
           {"--max-restarts", "--elastic", "--elastic_training", "--min_elastic_nodes", "--max_elastic_nodes",
            "--spare", "--copy", "--save_pid", "--enable_each_rank_log", "--bind_cores_to_rank", "--bind_core_list",
            "--ssh_port", "--launcher_args", "--comment", "--account"})
        if (one.name == option)
          refuse(one.name + " does not go with " + request_.started_by +
                 ", which has started this process as one rank " +
                 "of several; leave it out, or start `drivetrain launch` once and let it start the ranks" +
                 (request_.started_by == "srun" ? " (in a job of SLURM it does so by srun)"
                                                : " (--launcher openmpi|mpich)"));
  }

  void check_options_of_slurm() const {
    for (const auto& one : given_.given())
      if ((one.name == "--submit" || one.name == "--comment" || one.name == "--account") && request_.starter != "slurm")
        refuse(one.name + " goes with --launcher slurm" + (one.name == "--submit" ? "" : ", or with --submit FILE"));
  }

  void read_submission() {
    for (const auto& one : given_.given())
      for (const char* option : {"--hostfile", "--include", "--exclude", "--no_ssh", "--node_rank", "--ssh_port",
                                 "--max-restarts", "--elastic", "--elastic_training"})
        if (one.name == option)
          refuse(one.name + " does not go with --submit: SLURM chooses the hosts of the job, --num_nodes K of them");
    // The job reads it when it runs, on another host.
    if (const auto& plain = given_.plain(); !plain.empty() && !std::filesystem::is_regular_file(plain.front()))
      refuse("--submit wants a config that the job can read when it runs; " + shown(plain.front()) +
             " is no file: save it as one");
    request_.starter = "slurm";
    request_.submit = given_.text("--submit");
    request_.script =
        batch_script(given_, std::filesystem::read_symlink("/proc/self/exe"), std::filesystem::current_path());
    request_.dry_run = given_.has("--dry-run");
  }

  // A job decides, but for ranks that -n or --include want of this host, the job's only one.
  bool is_asked_for_job(const Allocation& job) const {
    const bool chosen_here = given_.has("-n") || given_.has("--include") || given_.has("--node_rank");
    return !request_.starter.empty() || job.hosts.size() > 1 || (!chosen_here && ranks_of(job.hosts) > 1);
  }

  void read_job() {
    const auto job = allocation(variable_of_process, expanded_hosts);
    if (!job || !is_asked_for_job(*job)) return;
    if (request_.starter == "slurm" && !job->is_slurm) return;
    if (job->is_slurm && !given_.has("--launcher")) {
      if (first_in_path({"srun"}).empty())
        refuse("this is " + job->name + ", and there is no srun in PATH to start ranks on its hosts with; --launcher " +
               "none starts ranks on this host alone");
      request_.starter = "slurm";
    }
    const bool filtered = given_.has("--include") || given_.has("--exclude");
    if (filtered && (given_.has("-n") || given_.has("--num_nodes")))
      refuse("--include and --exclude say which slots are used; leave out -n and --num_nodes");
    request_.hosts = hosts_of(*job, per_host());
    if (given_.has("--include")) request_.hosts = include_hosts(request_.hosts, given_.text("--include"));
    if (given_.has("--exclude")) request_.hosts = exclude_hosts(request_.hosts, given_.text("--exclude"));
    if (given_.has("--num_nodes")) take_first(*job, static_cast<size_t>(given_.whole("--num_nodes")));
    request_.said = allocation_line(*job, request_.hosts,
                                    request_.starter.empty()      ? "ssh"
                                    : request_.starter == "slurm" ? "srun"
                                                                  : starter_program(request_.starter));
  }

  void take_first(const Allocation& job, size_t nodes) {
    if (nodes > request_.hosts.size())
      refuse("--num_nodes " + std::to_string(nodes) + ": " + job.name + " has " + hosts_text(request_.hosts.size()));
    request_.hosts.resize(nodes);
  }

  [[noreturn]] void refuse_no_job() const {
    if (given_.has("--hostfile"))
      refuse(
          "--hostfile does not go with --launcher slurm: SLURM chooses the hosts; --include and --exclude choose of "
          "those of the job");
    refuse(
        "--launcher slurm: this is no SLURM job (SLURM_JOB_ID is not set); `salloc --nodes=K --ntasks-per-node=N` "
        "makes one, and --submit FILE writes a batch script and submits it");
  }

  // mpirun without a hostfile.
  std::vector<Host> ranks_of_this_host() const {
    if (given_.has("--num_nodes") && given_.whole("--num_nodes") > 1)
      refuse("--num_nodes needs --hostfile FILE, which names the hosts");
    if (given_.has("--include") || given_.has("--exclude")) return {};
    std::vector<int> slots(static_cast<size_t>(given_.whole("-n")));
    std::iota(slots.begin(), slots.end(), 0);
    return {{"localhost", slots}};
  }

  const cli::Arguments& given_;
  const bool own_start_;
  HostsRequest& request_;
};

}  // namespace

std::string launcher_named(const cli::Arguments& arguments) {
  std::string name = arguments.text("--launcher");
  for (char& letter : name) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return name;
}

void read_schedulers(const cli::Arguments& given, bool own_start, HostsRequest& request) {
  SchedulersReader(given, own_start, request).read();
}

}  // namespace drivetrain::program
