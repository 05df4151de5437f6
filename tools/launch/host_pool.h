// The hosts of a run that is started again after failures: those with ranks, in rank order, and those that stand by.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "launch/host_list.h"

namespace drivetrain::program {

// Of `--spare HOST[:K],...`; K: as many slots as the largest of `hosts` has, if it is not given. Throws UsageError.
std::vector<Host> parse_spares(const std::string& text, const std::vector<Host>& hosts);

class HostPool {
 public:
  HostPool(std::vector<Host> hosts, std::vector<Host> spares) : hosts_(std::move(hosts)), spares_(std::move(spares)) {}

  const std::vector<Host>& hosts() const { return hosts_; }
  // With slots for so many ranks, the first ones.
  std::vector<Host> hosts_of_ranks(int count) const;
  const std::string& host_of_rank(int rank) const;
  // A number for the slot that this rank has, and no other slot of any host.
  int place_of_rank(int rank);

  // The first host that stands by and has room for as many ranks gets those of host `name`. Returns its name; "":
  // there is none.
  std::string replace(const std::string& name);
  // It stands by, after all others.
  void stands_by(const Host& host) { spares_.push_back(host); }

  bool has_spares() const { return !spares_.empty(); }
  bool has(const std::string& name) const;
  // How many ranks there is room for without these hosts, and going on with so many.
  int ranks_without(const std::vector<std::string>& names) const;
  void leave_out(const std::vector<std::string>& names);
  void leave_out_slot_of(int rank);
  // The numbers of ranks that the first hosts have together without these, all of them first, `least` hosts last.
  std::vector<int> whole_hosts_without(const std::vector<std::string>& names, int least) const;
  // The first ones. Hosts that none is left for stand by.
  void keep_ranks(int count);

 private:
  std::vector<Host> hosts_, spares_;
  std::vector<std::string> seen_;
};

}  // namespace drivetrain::program
