// What `launch` makes of a job's variables, and the lines by which srun and mpirun are started.
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <thread>

#include "cli/parse.h"
#include "launch/allocation.h"
#include "launch/batch_script.h"
#include "launch/hosts_request.h"
#include "launch/line_relay.h"
#include "launch/starter_command.h"
#include "launch/task_listener.h"
#include "launch/write_text.h"
#include "support/texts.h"
#include "support/waiting.h"

namespace drivetrain::program {
namespace {

using test::expect_part;
using Names = std::vector<std::string>;

class Job {
 public:
  Job(std::map<std::string, std::string> variables, Names hosts) : variables_(std::move(variables)), hosts_(hosts) {}
  Allocation read() const {
    return *allocation(
        [this](const char* name) {
          const auto found = variables_.find(name);
          return found == variables_.end() ? nullptr : found->second.c_str();
        },
        [this](const std::string&) { return hosts_; });
  }
  std::string line(int per_host = 0) const { return allocation_line(read(), hosts_of(read(), per_host), "srun"); }
  std::string refusal(int per_host = 0) const {
    try {
      hosts_of(read(), per_host);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "not refused";
  }

 private:
  std::map<std::string, std::string> variables_;
  Names hosts_;
};

Job slurm(std::map<std::string, std::string> more, Names hosts = {"a", "b"}) {
  more.insert({{"SLURM_JOB_ID", "17"}, {"SLURM_JOB_NODELIST", "a,b"}});
  return {more, std::move(hosts)};
}

TEST(SlurmJob, has_its_tasks_as_ranks) {
  EXPECT_EQ(slurm({{"SLURM_NTASKS", "4"}, {"SLURM_TASKS_PER_NODE", "2(x2)"}}).line(),
            "SLURM job 17 has 2 tasks on each of 2 hosts: srun starts 4 ranks");
  // SLURM rounds tasks per node up.
  const auto uneven = hosts_of(slurm({{"SLURM_NTASKS", "3"}, {"SLURM_TASKS_PER_NODE", "2(x2)"}}).read(), 0);
  EXPECT_EQ(uneven.at(0).slots.size(), 2u);
  EXPECT_EQ(uneven.at(1).slots.size(), 1u);
  // Nobody asked for tasks: CPUs are none.
  EXPECT_EQ(slurm({{"SLURM_TASKS_PER_NODE", "8(x2)"}}).line(),
            "SLURM job 17 has 1 rank on each of 2 hosts: srun starts 2 ranks");
  EXPECT_EQ(slurm({{"SLURM_TASKS_PER_NODE", "8(x2)"}, {"SLURM_GPUS_ON_NODE", "4"}}).line(),
            "SLURM job 17 has 4 GPUs on each of 2 hosts: srun starts 8 ranks");
  EXPECT_EQ(slurm({{"SLURM_NTASKS", "4"}, {"SLURM_TASKS_PER_NODE", "2(x2)"}}).line(1),
            "SLURM job 17 has 1 task on each of 2 hosts: srun starts 2 ranks");
}

TEST(SlurmJob, refuses_more_ranks_than_it_has_room_for) {
  const std::string tasks = slurm({{"SLURM_NTASKS", "4"}, {"SLURM_TASKS_PER_NODE", "2(x2)"}}).refusal(3);
  expect_part(tasks, "-n 3: SLURM job 17 has 2 tasks on host a");
  expect_part(tasks, "--ntasks-per-node=3");
  const std::string gpus =
      slurm({{"SLURM_NTASKS", "8"}, {"SLURM_TASKS_PER_NODE", "4(x2)"}, {"SLURM_GPUS_PER_NODE", "a100:2"}}).refusal();
  expect_part(gpus, "4 ranks on host a, and SLURM job 17 has 2 GPUs there");
  expect_part(gpus, "give -n 2");
}

TEST(SlurmJob, refuses_variables_that_make_no_sense) {
  EXPECT_THROW(slurm({{"SLURM_TASKS_PER_NODE", "2(x"}}).read(), UsageError);
  EXPECT_THROW(slurm({{"SLURM_TASKS_PER_NODE", "2(x3)"}}).read(), UsageError);  // of two hosts
  EXPECT_THROW(slurm({{"SLURM_NTASKS", "-1"}}).read(), UsageError);
  EXPECT_THROW(slurm({}, {}).read(), UsageError);
  EXPECT_EQ(parse_tasks_per_node("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
}

TEST(PbsJob, has_a_slot_for_each_line) {
  const std::vector<Host> hosts = parse_pbs_hosts("b\nb\r\na\n\nb\n", "file");
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_EQ(hosts.at(0).name, "b");
  EXPECT_EQ(hosts.at(0).slots, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(hosts.at(1).slots, (std::vector<int>{0}));
  for (const char* text : {"", "a slots=2\n", "-oProxyCommand=x\n", "user@a\n"})
    EXPECT_THROW(parse_pbs_hosts(text, "file"), UsageError) << text;
}

TEST(StartedBy, is_who_has_started_several_of_this_process) {
  const auto by = [](std::map<std::string, std::string> variables) {
    return started_by([&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_EQ(by({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}), "mpirun");
  EXPECT_EQ(by({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}), "srun");
  EXPECT_EQ(by({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}), "");  // a batch script
  EXPECT_EQ(by({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}), "");
}

HostsRequest request(const std::string& starter, std::vector<Host> hosts) {
  HostsRequest request;
  request.starter = starter, request.starter_program = starter, request.hosts = std::move(hosts);
  return request;
}

TEST(StarterCommand, names_hosts_slots_and_variables_but_no_value) {
  const std::vector<Host> uneven{{"a", {0, 2}}, {"b", {1}}};
  const auto line = [](const HostsRequest& request) {
    return shell_line(starter_command(request, ranks_of(request.hosts), {"drivetrain", "agent"}));
  };
  EXPECT_EQ(line(request("mpich", uneven)), "mpich -hosts a:2,b:1 -n 3 drivetrain agent");
  EXPECT_EQ(
      line(request("openmpi", uneven)),
      "openmpi --host a:2,b:1 -n 3 --bind-to none -x DRIVETRAIN_LAUNCHER -x DRIVETRAIN_RUN_TOKEN drivetrain agent");
  EXPECT_EQ(
      line(request("slurm", {{"a", {0, 1}}, {"b", {0, 1}}})),
      "slurm --ntasks=4 --input=none --nodes=2 --ntasks-per-node=2 --nodelist=a,b --distribution=block drivetrain "
      "agent");
  HostsRequest more = request("slurm", uneven);
  more.launcher_args = {"--cpu-bind=none"}, more.account = "us";
  EXPECT_EQ(line(more),
            "slurm --ntasks=3 --input=none --nodes=2 --nodelist=a,a,b --distribution=arbitrary --account=us "
            "--cpu-bind=none drivetrain agent");
  HostsRequest bound = request("openmpi", {{"a", {0}}});
  bound.launcher_args = {"--bind-to", "core"};
  EXPECT_EQ(line(bound).find("none"), std::string::npos) << line(bound);
  EXPECT_THROW(line(request("mpich", {{"fd00::1", {0}}})), UsageError);
}

TEST(BatchScript, asks_for_the_hosts_and_keeps_the_other_options) {
  const std::string script =
      batch_script(cli::parse({"launch", "--submit", "job.sh", "--num_nodes", "2", "-n", "4", "--account", "us",
                               "--comment", "it's ours", "--set", "seed=3", "dir/my run.json"}),
                   "/opt/bin/drivetrain", "/a b");
  for (const char* part :
       {"#!/bin/bash\n", "#SBATCH --job-name=\"my run\"\n", "#SBATCH --nodes=2\n", "#SBATCH --ntasks-per-node=4\n",
        "#SBATCH --account=us\n", "#SBATCH --comment=\"it's ours\"\n", "#SBATCH --requeue\n", "cd '/a b' || exit 8\n",
        "/opt/bin/drivetrain launch --launcher slurm 'dir/my run.json' --set seed=3 &\n", "if [ $code = 75 ]",
        "scontrol requeue"})
    expect_part(script, part);
}

TEST(BatchScript, is_the_one_that_configs_has_as_an_example) {
  std::ostringstream example;
  example << std::ifstream(DRIVETRAIN_SOURCE_DIR "/configs/slurm.sh").rdbuf();
  EXPECT_EQ(batch_script(cli::parse({"launch", "--submit", "job.sh", "--num_nodes", "2", "-n", "4", "--set",
                                     "communicator.type=tcp", "quickstart.json"}),
                         "/opt/drivetrain/bin/drivetrain", "/home/you/runs"),
            example.str());
}

// ---- where tasks come to ----

sockaddr_in place_at(in_addr_t address, int port) {
  sockaddr_in place{};
  place.sin_family = AF_INET, place.sin_port = htons(static_cast<uint16_t>(port)),
  place.sin_addr.s_addr = htonl(address);
  return place;
}

// Somebody who connects to the door and is no agent of it.
class Visitor {
 public:
  explicit Visitor(const ListenerAddress& sign) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in place = place_at(INADDR_LOOPBACK, sign.port);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
  }
  Visitor(const Visitor&) = delete;
  ~Visitor() { close(fd_); }
  int fd() const { return fd_; }
  void says(const std::string& text) const { send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  bool was_sent_away() const {
    char c = 0;
    return recv(fd_, &c, 1, MSG_DONTWAIT) == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }

 private:
  int fd_;
};

// An agent that MPICH has started, as a process of its own, until it has come to its launcher.
class Agent {
 public:
  Agent(const ListenerAddress& sign, int rank, int size) : said_(memfd_create("said", MFD_CLOEXEC)), pid_(fork()) {
    if (pid_ != 0) return;
    setenv("PMI_RANK", std::to_string(rank).c_str(), 1);
    setenv("PMI_SIZE", std::to_string(size).c_str(), 1);
    setenv("SLURMD_NODENAME", "host-b", 1);
    try {
      write_text(said_, join_launcher("mpich", sign, test::deadline_s()));
      write_text(STDOUT_FILENO, "and what follows");
    } catch (const std::exception& e) {
      write_text(said_, e.what());
      _exit(5);
    }
    _exit(0);
  }
  Agent(const Agent&) = delete;
  ~Agent() { close(said_); }

  bool is_running() const {
    siginfo_t info = {};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    return info.si_pid == 0;
  }
  int exit_code() const {
    int status = 0;
    waitpid(pid_, &status, 0);
    return WEXITSTATUS(status);
  }
  std::string said() const {
    std::ostringstream text;
    text << std::ifstream("/proc/self/fd/" + std::to_string(said_)).rdbuf();
    return text.str();
  }

 private:
  int said_;
  pid_t pid_;
};

// Those that come, until there are as many.
std::vector<Task> come(TaskListener& listener, double now, size_t wanted) {
  std::vector<Task> all;
  test::eventually([&] {
    std::vector<pollfd> fds = listener.fds();
    poll(fds.data(), fds.size(), 5);
    for (Task& task : listener.let_in(now)) all.push_back(std::move(task));
    return all.size() >= wanted;
  });
  return all;
}

TEST(TaskListener, lets_in_who_has_the_key_and_nobody_else) {
  TaskListener listener(true);
  const Visitor silent(listener.sign()), garbage(listener.sign()), only_key(listener.sign());
  garbage.says(std::string(100'000, '\x80'));
  only_key.says(listener.sign().key + " 0 2 a\n");
  ListenerAddress of_another_launch = listener.sign();
  of_another_launch.key[0] = of_another_launch.key[0] == '0' ? '1' : '0';
  Agent wrong_key(of_another_launch, 0, 2), task(listener.sign(), 1, 2);
  std::vector<Task> came = come(listener, 1, 1);
  ASSERT_EQ(came.size(), 1u);
  EXPECT_EQ(came[0].rank, 1);
  EXPECT_EQ(came[0].size, 2);
  EXPECT_EQ(came[0].host, "host-b");
  EXPECT_EQ(task.exit_code(), 0) << task.said();
  char follows[32] = {};
  EXPECT_EQ(std::string(follows, static_cast<size_t>(read(came[0].socket.get(), follows, sizeof follows))),
            "and what follows");
  EXPECT_TRUE(test::eventually([&] { return listener.let_in(1), !wrong_key.is_running(); }));
  EXPECT_EQ(wrong_key.exit_code(), 5);
  expect_part(wrong_key.said(), "127.0.0.1: who answers there is not the launcher of this run");
  EXPECT_TRUE(garbage.was_sent_away());
  EXPECT_FALSE(silent.was_sent_away());
  listener.let_in(7);
  EXPECT_TRUE(silent.was_sent_away());
  EXPECT_TRUE(only_key.was_sent_away());
}

// Another user's program on the agent's own host, at an address that the launcher's host has too (docker0).
class Stranger {
 public:
  explicit Stranger(int port) : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in place = place_at(INADDR_LOOPBACK + 1, port);
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
  }
  ~Stranger() { close(listener_); }

  // Passes on to the launcher what comes, and the answer back; or answers as `says`.
  void serve(const ListenerAddress& sign, const std::string& says) {
    const int guest = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const Visitor launcher(sign);
    if (!says.empty()) send(guest, says.data(), says.size(), MSG_NOSIGNAL);
    for (bool open = true; open;) {
      pollfd fds[2] = {{guest, POLLIN, 0}, {launcher.fd(), POLLIN, 0}};
      if (poll(fds, 2, static_cast<int>(1000 * test::deadline_s())) <= 0) break;
      char bytes[4096];
      for (int from = 0; from < 2 && open; ++from) {
        if (!fds[from].revents) continue;
        const ssize_t n = recv(fds[from].fd, bytes, sizeof bytes, 0);
        open = n > 0;
        if (from == 0 && n > 0) heard_.append(bytes, static_cast<size_t>(n));
        if (open && says.empty()) send(fds[1 - from].fd, bytes, static_cast<size_t>(n), MSG_NOSIGNAL);
      }
    }
    close(guest);
  }
  const std::string& heard() const { return heard_; }

 private:
  int listener_;
  std::string heard_;
};

TEST(TaskListener, an_agent_obeys_no_stranger_who_answers_first) {
  for (const std::string& says : {std::string(), std::string(200, 'G')}) {
    TaskListener listener(true);
    ListenerAddress sign = listener.sign();
    sign.addresses = {"127.0.0.2", "127.0.0.1"};
    Stranger stranger(sign.port);
    Agent agent(sign, 0, 1);
    std::thread serves([&] { stranger.serve(listener.sign(), says); });
    EXPECT_EQ(come(listener, 1, 1).size(), 1u);
    EXPECT_EQ(agent.exit_code(), 0);
    serves.join();
    EXPECT_EQ(agent.said().find("127.0.0.1 " + std::to_string(sign.port)), 0u) << agent.said();
    EXPECT_EQ(stranger.heard().size(), 60u);  // a hello, which tells a stranger nothing
    EXPECT_EQ(stranger.heard().find(sign.key), std::string::npos);
  }
}

TEST(TaskListener, a_crowd_of_silent_strangers_keeps_no_task_out) {
  TaskListener listener(true);
  std::vector<std::unique_ptr<Visitor>> crowd;
  for (int i = 0; i < 200; ++i) crowd.push_back(std::make_unique<Visitor>(listener.sign())), listener.let_in(1);
  Agent task(listener.sign(), 0, 1);
  EXPECT_EQ(come(listener, 2, 1).size(), 1u);
  EXPECT_EQ(task.exit_code(), 0) << task.said();
}

TEST(TaskListener, a_crowd_that_takes_all_open_files_keeps_no_task_out) {
  TaskListener listener(true);
  std::vector<std::unique_ptr<Visitor>> crowd;
  for (int i = 0; i < 100; ++i) crowd.push_back(std::make_unique<Visitor>(listener.sign()));
  Agent task(listener.sign(), 0, 1);
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few = {static_cast<rlim_t>(crowd.back()->fd() + 8), before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  const std::vector<Task> came = come(listener, 1, 1);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(came.size(), 1u);
  EXPECT_EQ(task.exit_code(), 0) << task.said();
}

TEST(ListenerAddress, an_agent_leaves_out_addresses_of_its_own_host) {
  TaskListener listener(false);
  const ListenerAddress& own = listener.sign();
  EXPECT_EQ(ListenerAddress::of(own.text()).text(), own.text());
  EXPECT_EQ(own.to_try(), own.addresses);  // the launcher is here
  ListenerAddress far = own;
  far.network = "another boot:4026531840";
  far.addresses.insert(far.addresses.end(), {"127.0.0.1", "192.0.2.1"});
  EXPECT_EQ(far.to_try(), Names{"192.0.2.1"});
  far.network = "?";
  EXPECT_EQ(far.to_try(), far.addresses);
}

}  // namespace
}  // namespace drivetrain::program
