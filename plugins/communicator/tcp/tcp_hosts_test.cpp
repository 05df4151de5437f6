// communicator/tcp between two network namespaces, as between hosts: addresses by which rank 0 is reached, IPv6, a
// link that is cut.
#include <fcntl.h>
#include <sched.h>

#include <drivetrain/testkit/communicator/works.h>
#include "conformance/communicator/linked.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

bool run(const std::string& command) { return std::system(("( " + command + " ) >/dev/null 2>&1").c_str()) == 0; }

// Two namespaces with a cable between them; each has a second address that does not lead to the other.
struct TwoHosts {
  TwoHosts() {
    const auto on = [&](int host, const std::string& what) { return concat("ip -n ", name(host), " ", what, " && "); };
    std::string all = concat("ip netns add ", name(0), " && ip netns add ", name(1), " && ");
    all += concat("ip link add dt0 netns ", name(0), " type veth peer name dt1 netns ", name(1), " && ");
    for (const int host : {0, 1}) {
      const std::string cable = concat("dt", host);
      all += on(host, "link add dtx type veth peer name dty") + on(host, "addr add 172.30.9.9/24 dev dtx");
      all += on(host, concat("addr add 10.79.0.", host + 1, "/24 dev ", cable));
      all += on(host, concat("addr add fd79::", host + 1, "/64 dev ", cable, " nodad"));
      for (const std::string& device : {std::string("lo"), std::string("dtx"), std::string("dty"), cable})
        all += on(host, "link set " + device + " up");
    }
    all += "true";
    made = geteuid() == 0 && run(all);
  }
  TwoHosts(const TwoHosts&) = delete;
  ~TwoHosts() {
    for (const int host : {0, 1}) run("ip netns del " + name(host));
  }
  std::string name(int host) const { return concat(base, host); }
  void enter(int host) const {
    const int fd = open(concat("/run/netns/", name(host)).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) throw std::runtime_error("cannot enter the namespace");
    close(fd);
  }
  // Two ranks on each host. What each of them threw.
  std::vector<std::string> ranks(const std::string& master, const std::string& options, const Body& body,
                                 double store_timeout_s = 20) const;

  const std::string base = concat("dt", getpid(), "h");
  bool made = false;
};

std::vector<std::string> TwoHosts::ranks(const std::string& master, const std::string& options, const Body& body,
                                         double store_timeout_s) const {
  constexpr int kRanks = 4;
  int ends[kRanks][2];
  std::vector<pid_t> pids;
  for (int r = 0; r < kRanks; ++r) {
    if (pipe(ends[r]) != 0) throw std::runtime_error("pipe");
    pids.push_back(fork());
    if (pids.back() != 0) {
      close(ends[r][1]);
      continue;
    }
    std::string error;
    try {
      enter(r / 2);
      RankEnvironment env{.rank = r, .world_size = kRanks, .local_rank = r % 2, .local_size = 2};
      env.master_addr = master;
      env.token = "a secret of these tests alone";
      const auto store = make_store(env, store_timeout_s);
      const CommunicatorMaker usual = communicator_maker;
      communicator_maker = [&](const std::string& json, const Services& all_here) {
        Services services = all_here;
        services.local_rank = env.local_rank, services.local_size = env.local_size;
        return usual(json, services);
      };
      Rank rank(r, kRanks, *store, options);
      body(rank);
      if (::testing::Test::HasFailure()) error = "an expectation failed in this rank's process";
    } catch (const std::exception& e) {
      error = e.what();
    }
    if (write(ends[r][1], error.data(), error.size()) < 0) _exit(2);
    _exit(0);
  }
  std::vector<std::string> errors(kRanks);
  for (int r = 0; r < kRanks; ++r) {
    char buffer[4096];
    for (ssize_t got; (got = read(ends[r][0], buffer, sizeof buffer)) > 0;)
      errors[static_cast<size_t>(r)].append(buffer, static_cast<size_t>(got));
    close(ends[r][0]);
    waitpid(pids[static_cast<size_t>(r)], nullptr, 0);
  }
  return errors;
}

#define NEEDS_TWO_HOSTS(hosts)                                                           \
  const TwoHosts hosts;                                                                  \
  if (!hosts.made)                                                                       \
  GTEST_SKIP() << "no permission to make network namespaces with a cable between them, " \
                  "or no `ip` (Debian: iproute2)"

TEST(CommunicatorTcpHosts, ranks_meet_where_rank_0_is_reached) {
  NEEDS_TWO_HOSTS(hosts);
  for (const char* master : {"10.79.0.1", "fd79::1"})
    expect_no_errors(hosts.ranks(master, R"({"timeout_s": 20})", [](Rank& r) {
      const GroupPtr world = r.world(), across = r.group(every_second(r.rank() % 2, 4), concat("half", r.rank() % 2));
      for (const GroupPtr& group : {world, across})
        for (const int64_t n : {3, 70001}) {
          const Collectives c{r, *group, at::kFloat, Place::own};
          c.moves(n);
          c.messages(n);
        }
      at::Tensor t = uneven_tensor(*world, r.rank(), 5003, false);
      world->all_reduce(t)->wait();
      expect_tree(t, 4, "all_reduce");
    }));
}

TEST(CommunicatorTcpHosts, a_cut_link_ends_all_ranks) {
  NEEDS_TWO_HOSTS(hosts);
  const std::string cut = concat("ip -n ", hosts.name(0), " link set dt0 down");
  const auto errors = hosts.ranks(
      "10.79.0.1", R"({"timeout_s": 2})",
      [&](Rank& r) {
        const GroupPtr world = r.world();
        world->barrier();
        if (r.rank() == 0 && !run(cut)) throw std::runtime_error("cannot cut");
        at::Tensor t = at::empty({100000}, at::kFloat);
        for (;;) world->all_reduce(t)->wait();
      },
      6);
  for (const std::string& error : errors) expect_part(error, "group \"world\"");
  expect_part(errors[0], "rank");
}

}  // namespace
}  // namespace drivetrain
