// Which hosts a run has, and which slots of each: a hostfile as DeepSpeed and MPI write it, and DeepSpeed's filters.
// Pure but for reading the file; all throw UsageError.
#pragma once

#include <string>
#include <vector>

namespace drivetrain::program {

struct Host {
  std::string name;        // as ssh takes it; an IPv6 address without brackets
  std::vector<int> slots;  // a rank each: the k-th GPU, where there are GPUs
  int line = 0;            // of the hostfile; 0: it stands in none
};

// What is wrong with the name of a host; "": nothing.
std::string host_name_problem(const std::string& name);
// As the network knows them: WORKER-0 is worker-0.
bool same_host_name(const std::string& a, const std::string& b);

// Lines "NAME slots=K"; '#' begins a comment. `path` is for messages.
std::vector<Host> parse_hostfile(const std::string& text, const std::string& path);
std::vector<Host> read_hostfile(const std::string& path);

// "a@b:0,2" names all slots of a and two of b; an IPv6 address stands in brackets. Hosts keep the order of the
// hostfile.
struct HostFilter {
  std::string name;
  std::vector<int> slots;  // empty: all
};
std::vector<HostFilter> parse_host_filter(const std::string& text, const std::string& option);
std::vector<Host> include_hosts(const std::vector<Host>& hosts, const std::string& filter);
std::vector<Host> exclude_hosts(const std::vector<Host>& hosts, const std::string& filter);

// The first `nodes` hosts, with the first `per_host` slots of each; 0: all of them.
std::vector<Host> first_hosts(std::vector<Host> hosts, int nodes, int per_host);

int ranks_of(const std::vector<Host>& hosts);
// "2 hosts"
std::string hosts_text(size_t count);

}  // namespace drivetrain::program
