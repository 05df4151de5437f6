// What `drivetrain launch` is asked about hosts: which, how they are reached, where rank 0 listens, and what ranks find
// in their environment.
#pragma once

#include <string>
#include <vector>

#include "cli/arguments.h"
#include "launch/host_list.h"

namespace drivetrain::program {

struct HostsRequest {
  std::vector<Host> hosts;   // in rank order; empty: this host, and no slots were chosen
  std::vector<Host> spares;  // that stand by for restarts
  std::string hostfile;      // in which `hosts` stand; "": in none
  std::string copy_folder;   // where hosts get the program and the config; "": they have them
  bool over_ssh = false;     // agents on `hosts`, by ssh or a starter; else this process starts the ranks of one
  int node_rank = 0;         // which of `hosts` this is, where not over ssh
  int ssh_port = 0;          // 0: as ssh's configuration says
  // What starts an agent for each rank: "openmpi", "mpich" or "slurm"; "": ssh starts one on each host.
  std::string starter, starter_program;
  std::string started_by;                  // "srun": it has started several of this process, each of which is a rank
  std::string said;                        // what is done since a batch system says so; a line for the user
  std::string comment, account;            // for SLURM
  std::string submit, script;              // the file to write and submit, and what goes into it; "": ranks are started
  std::vector<std::string> launcher_args;  // for ssh before our own, for a starter behind them
  std::string master_addr;                 // "": by route
  int master_port = 0;                     // 0: a free one
  bool dry_run = false;
  std::vector<std::string> environment;  // NAME=VALUE for every rank
  double hello_may_take_s = 30;          // from ssh's start to the agent's first word
  double tasks_may_take_s = 60;          // from the starter's begin until all of its tasks have come
  double answer_may_take_s = 15;         // of an agent to what it is asked before ranks start
  double end_may_take_s = 9;             // from the first failure until every rank's end is known
};

// Of `--hostfile` and its like. Throws UsageError. Reads ~/.deepspeed_env and its like, and this process's environment,
// where agents start the ranks.
HostsRequest hosts_request(const cli::Arguments& arguments);

// Lines NAME=VALUE; `path` is for messages. Throws UsageError.
std::vector<std::string> parse_environment_file(const std::string& text, const std::string& path);

// Words as a shell takes them apart: blanks, quotes, backslashes. Throws UsageError.
std::vector<std::string> shell_words(const std::string& text, const std::string& option);
// One word so that a shell gives it back.
std::string shell_quoted(const std::string& word);
std::string shell_line(const std::vector<std::string>& words);

}  // namespace drivetrain::program
