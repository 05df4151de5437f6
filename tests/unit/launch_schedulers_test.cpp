// What `launch` makes of a job's variables, and the lines by which srun and mpirun are started.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "cli/parse.h"
#include "hosts/hosts_request.h"
#include "schedulers/allocation.h"
#include "schedulers/batch_script.h"
#include "schedulers/starter_command.h"

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

}  // namespace
}  // namespace drivetrain::program
