// What `launch` makes of a job's variables, and the lines by which srun and mpirun are started.
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "cli/parse.h"
#include "hosts/hosts_request.h"
#include "schedulers/allocation.h"
#include "schedulers/batch_script.h"
#include "schedulers/starter_command.h"
#include "schedulers/task_door.h"

namespace drivetrain::program {
namespace {

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

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

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

// Somebody who connects to the door, whose text is "KEY PORT ADDRESS".
class Visitor {
 public:
  explicit Visitor(const std::string& door) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    std::istringstream words(door);
    std::string key;
    int port = 0;
    words >> key >> port;
    sockaddr_in address{};
    address.sin_family = AF_INET, address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  Visitor(const Visitor&) = delete;
  ~Visitor() { close(fd_); }
  void says(const std::string& text) const { send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  bool was_sent_away() const {
    char c = 0;
    return recv(fd_, &c, 1, MSG_DONTWAIT) == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }

 private:
  int fd_;
};

std::string key_of(const TaskDoor& door) { return door.text().substr(0, door.text().find(' ')); }

std::vector<Task> come(TaskDoor& door, double now) {
  std::vector<Task> all;
  for (int i = 0; i < 20; ++i, usleep(1000))
    for (Task& task : door.let_in(now)) all.push_back(std::move(task));
  return all;
}

TEST(TaskDoor, lets_in_who_has_the_key_and_nobody_else) {
  TaskDoor door(true);
  const Visitor silent(door.text()), garbage(door.text()), wrong_key(door.text()), half(door.text()),
      other_words(door.text()), task(door.text());
  garbage.says(std::string(100'000, '\x80'));
  wrong_key.says(std::string(key_of(door).size(), '0') + " 0 2 a\n");
  half.says(key_of(door).substr(0, 8) + " 0 2 a\n");
  other_words.says(key_of(door) + " GET / HTTP/1.1\n");
  task.says(key_of(door) + " 1 2 host-b\nand what follows");
  const std::vector<Task> came = come(door, 1);
  ASSERT_EQ(came.size(), 1u);
  EXPECT_EQ(came[0].rank, 1);
  EXPECT_EQ(came[0].size, 2);
  EXPECT_EQ(came[0].host, "host-b");
  for (const Visitor* one : {&garbage, &wrong_key, &half, &other_words}) EXPECT_TRUE(one->was_sent_away());
  EXPECT_FALSE(silent.was_sent_away());
  EXPECT_TRUE(come(door, 7).empty());
  EXPECT_TRUE(silent.was_sent_away());
  EXPECT_FALSE(task.was_sent_away());
}

TEST(TaskDoor, a_crowd_of_silent_strangers_keeps_no_task_out) {
  TaskDoor door(true);
  std::vector<std::unique_ptr<Visitor>> crowd;
  for (int i = 0; i < 200; ++i) crowd.push_back(std::make_unique<Visitor>(door.text())), door.let_in(1);
  const Visitor task(door.text());
  task.says(key_of(door) + " 0 1 a\n");
  EXPECT_EQ(come(door, 2).size(), 1u);
}

}  // namespace
}  // namespace drivetrain::program
