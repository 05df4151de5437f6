// What `launch` makes of its options about hosts, and that it has an answer to every option of DeepSpeed's launcher.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/commands.h"
#include "cli/parse.h"
#include "launch/dry_run.h"
#include "launch/request.h"

namespace drivetrain::program {
namespace {

using Words = std::vector<std::string>;

class HostsRequestTest : public testing::Test {
 protected:
  HostsRequestTest() {
    char own[256] = {};
    gethostname(own, sizeof own - 1);
    name_ = own;
    write("hosts", "far-a slots=2\nfar-b slots=2\n");
    write("own", name_ + " slots=4\n");
    write("config.json", "{}");
  }
  ~HostsRequestTest() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ + "/" + file) << text;
  }
  std::string path(const std::string& file) const { return folder_ + "/" + file; }

  LaunchRequest request(Words words) const {
    words.insert(words.begin(), "launch");
    words.push_back(path("config.json"));
    return launch_request(cli::parse(words));
  }
  std::string message(const Words& words) const {
    try {
      request(words);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "not refused";
  }
  void expect_refused(const Words& words, const std::string& part) const {
    const std::string said = message(words);
    EXPECT_NE(said.find(part), std::string::npos) << said;
  }

  const std::string folder_ = testing::TempDir() + "/launch_hosts_request_" + std::to_string(getpid());
  std::string name_;
};

TEST_F(HostsRequestTest, ssh_is_for_other_hosts) {
  const LaunchRequest far = request({"-H", path("hosts")});
  EXPECT_TRUE(far.hosts.over_ssh);
  EXPECT_EQ(far.ranks, 4);
  EXPECT_EQ(far.config_path, path("config.json"));
  EXPECT_FALSE(request({"--hostfile", path("own")}).hosts.over_ssh);
  EXPECT_EQ(request({"--hostfile", path("own")}).ranks, 4);
  EXPECT_TRUE(request({"--hostfile", path("own"), "--force_multi"}).hosts.over_ssh);
  EXPECT_FALSE(request({"-n", "3"}).hosts.over_ssh);
  EXPECT_TRUE(request({"-n", "3"}).hosts.hosts.empty());
}

// Each process of mpirun becomes a rank: there is no launcher that could restart, bind or log.
TEST_F(HostsRequestTest, what_only_a_launcher_can_do_is_refused_in_a_rank_of_another_starter) {
  setenv("PMI_RANK", "1", 1), setenv("PMI_SIZE", "2", 1);
  EXPECT_EQ(request({"--env", "A=b"}).hosts.started_by, "mpirun");
  for (const Words& words : {Words{"--max-restarts", "3"},
                             {"--bind_cores_to_rank"},
                             {"--enable_each_rank_log", "logs"},
                             {"--save_pid"},
                             {"--copy", "there"},
                             {"--ssh_port", "22"},
                             {"--account", "a"}})
    expect_refused(words, words[0] + " does not go with mpirun, which has started this process as one rank");
  unsetenv("PMI_RANK"), unsetenv("PMI_SIZE");
}

TEST_F(HostsRequestTest, gpus_of_this_host_are_chosen_without_a_hostfile) {
  const LaunchRequest chosen = request({"--include", "localhost:1,3"});
  EXPECT_EQ(chosen.ranks, 2);
  EXPECT_EQ(chosen.hosts.hosts.at(0).slots, (std::vector<int>{1, 3}));
  expect_refused({"--include", "localhost"}, "says no slots; use -n N");
  expect_refused({"--include", "far-a:0"}, "goes with --hostfile FILE");
  expect_refused({"--exclude", "localhost:0"}, "--exclude goes with --hostfile FILE");
  expect_refused({"--num_nodes", "2"}, "needs --hostfile FILE");
}

TEST_F(HostsRequestTest, a_launch_on_each_host_knows_which_it_is) {
  const Words there{"--master_addr", "10.0.0.1", "--master_port", "29500"};
  Words words{"--no_ssh", "--num_nodes", "3", "-n", "2", "--node_rank", "2"};
  expect_refused(words, "--no_ssh needs --master_addr");
  words.insert(words.end(), there.begin(), there.end());
  const LaunchRequest third = request(words);
  EXPECT_FALSE(third.hosts.over_ssh);
  EXPECT_EQ(third.ranks, 6);
  EXPECT_EQ(third.hosts.node_rank, 2);
  words[5 + 1] = "3";
  expect_refused(words, "the run has 3 hosts, counted from 0");
  expect_refused({"--launcher", "none", "-H", path("hosts")}, "which of 2 hosts is this?");
  expect_refused({"--node_rank", "0"}, "--node_rank goes with --no_ssh");
}

TEST_F(HostsRequestTest, options_that_would_do_nothing_are_refused) {
  expect_refused({"--ssh_port", "22", "-n", "2"}, "--ssh_port goes with a run over ssh");
  expect_refused({"--launcher_args", "-v"}, "--launcher_args goes with a run over ssh");
  expect_refused({"--no_ssh", "--node_rank", "0", "--num_nodes", "2", "--master_addr", "a", "--master_port", "1",
                  "--max-restarts", "1"},
                 "who starts the ranks of each host by itself starts them again");
  expect_refused({"-n", "2", "--max-restarts", "1", "--spare", "far-c"}, "--spare goes with a run over ssh");
  expect_refused({"-H", path("hosts"), "--launcher", "pdsh"}, "leave --launcher out");
  expect_refused({"-n", "2", "--comment", "x"}, "--comment goes with --launcher slurm");
  expect_refused({"--launcher", "mpich", "--submit", "job.sh"}, "--submit goes with --launcher slurm");
  expect_refused({"--submit", "job.sh", "-H", path("hosts")}, "--hostfile does not go with --submit");
  for (const char* piped : {"-", "/dev/fd/0"})
    EXPECT_THROW(launch_request(cli::parse({"launch", "--submit", "job.sh", piped})), UsageError) << piped;
  expect_refused({"-H", path("hosts"), "--launcher", "slurm"}, "SLURM chooses the hosts");
  expect_refused({"-H", path("hosts"), "--include", "far-a", "--num_nodes", "1"}, "leave out --num_nodes");
  expect_refused({"-n", "2", "--master_addr", "a b"}, "--master_addr: \"a b\" is no host name or address");
  expect_refused({"-n", "2", "--master_addr", ""}, "--master_addr wants an address");
}

TEST_F(HostsRequestTest, spares_have_room_for_the_ranks_of_the_largest_host_or_say_for_how_many) {
  const LaunchRequest one =
      request({"-H", path("hosts"), "--max-restarts", "1", "--spare", "far-c,[fd00::1]:3", "--elastic", "1:4"});
  ASSERT_EQ(one.hosts.spares.size(), 2u);
  EXPECT_EQ(one.hosts.spares[0].slots.size(), 2u);
  EXPECT_EQ(one.hosts.spares[1].name, "fd00::1");
  EXPECT_EQ(one.hosts.spares[1].slots.size(), 3u);
  EXPECT_EQ(one.ranks, 4);
  expect_refused({"-H", path("hosts"), "--max-restarts", "1", "--spare", "far-a"}, "is one of the run already");
  expect_refused({"-H", path("hosts"), "--max-restarts", "1", "--spare", "FAR-A"}, "the host FAR-A is one of the run");
  expect_refused({"-H", path("hosts"), "--max-restarts", "1", "--spare", "far-c,Far-C"}, "or stands there twice");
  expect_refused({"-H", path("hosts"), "--max-restarts", "1", "--elastic", "1:3"},
                 "the hosts together have 4 ranks, which is not");
}

TEST_F(HostsRequestTest, elastic_hosts_are_those_of_deepspeeds_options) {
  write("four", "far-a slots=2\nfar-b slots=2\nfar-c slots=2\nfar-d slots=4\n");
  const LaunchRequest one = request({"-H", path("four"), "--elastic_training", "--num_nodes", "2", "--num_gpus", "1",
                                     "--min_elastic_nodes", "2", "--max_elastic_nodes", "3", "--spare", "far-d,far-e"});
  EXPECT_EQ(one.max_restarts, 100);
  EXPECT_EQ(one.least_hosts, 2);
  EXPECT_EQ(one.least_ranks, 0);
  EXPECT_EQ(one.hosts.hosts.size(), 2u);
  ASSERT_EQ(one.hosts.spares.size(), 3u);
  EXPECT_EQ(one.hosts.spares[0].name, "far-c");
  EXPECT_EQ(one.hosts.spares[0].slots.size(), 1u);
  EXPECT_EQ(request({"-H", path("four"), "--elastic_training", "--max-restarts", "3"}).max_restarts, 3);
  EXPECT_EQ(request({"-H", path("four"), "--elastic_training"}).least_hosts, 1);
  EXPECT_EQ(request({"-n", "2", "--elastic_training"}).least_hosts, 1);
  expect_refused({"-H", path("four"), "--min_elastic_nodes", "2"}, "--min_elastic_nodes goes with --elastic_training");
  expect_refused({"-H", path("four"), "--elastic_training", "--min_elastic_nodes", "5"}, "the run has 4 hosts");
  expect_refused({"-H", path("four"), "--elastic_training", "--max_elastic_nodes", "3"}, "--num_nodes 3 begins with");
  expect_refused({"-H", path("four"), "--elastic_training", "--max-restarts", "0"}, "goes with --max-restarts N");
  expect_refused({"-H", path("four"), "--elastic_training", "--elastic", "1:4"}, "exclude each other");
  expect_refused({"-H", path("four"), "--launcher", "MPICH", "--elastic_training"}, "--elastic_training: not in this");
}

TEST_F(HostsRequestTest, dry_run_shows_every_command_and_its_place) {
  const std::string text = dry_run_text(request(
      {"-H", path("hosts"), "--include", "far-a:1@far-b", "--env", "A=b c", "--master_port", "5", "--dry-run"}));
  EXPECT_NE(text.find("launcher: ssh "), std::string::npos) << text;
  EXPECT_NE(text.find(" -- far-a 'exec "), std::string::npos) << text;
  EXPECT_NE(text.find("far-a: cd "), std::string::npos) << text;
  EXPECT_NE(text.find(" A='b c' CUDA_VISIBLE_DEVICES=1 RANK=0 LOCAL_RANK=0 WORLD_SIZE=3 LOCAL_WORLD_SIZE=1 "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(" RANK=2 LOCAL_RANK=1 WORLD_SIZE=3 LOCAL_WORLD_SIZE=2 MASTER_ADDR=<address of far-a by route> "
                      "MASTER_PORT=5 "),
            std::string::npos)
      << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5);  // two of ssh, three ranks
  EXPECT_NE(dry_run_text(request({"-n", "2", "--dry-run"})).find("localhost: cd "), std::string::npos);
}

// The arguments of deepspeed/launcher/runner.py of DeepSpeed 0.18.
const Words kDeepSpeeds{"--hostfile",
                        "-H",
                        "--include",
                        "-i",
                        "--exclude",
                        "-e",
                        "--num_nodes",
                        "--min_elastic_nodes",
                        "--max_elastic_nodes",
                        "--num_gpus",
                        "--num_accelerators",
                        "--master_port",
                        "--master_addr",
                        "--node_rank",
                        "--launcher",
                        "--launcher_args",
                        "--module",
                        "--no_python",
                        "--no_local_rank",
                        "--no_ssh",
                        "--no_ssh_check",
                        "--force_multi",
                        "--save_pid",
                        "--enable_each_rank_log",
                        "--autotuning",
                        "--comment",
                        "--account",
                        "--elastic_training",
                        "--bind_cores_to_rank",
                        "--bind_core_list",
                        "--ssh_port"};

// What the table of tools/README.md says of each: "the same..." or "refused: why".
std::string said_in_readme(const std::string& option) {
  std::ifstream file(DRIVETRAIN_SOURCE_DIR "/tools/README.md");
  for (std::string line; std::getline(file, line);) {
    const size_t end = line.find(" | ", 2);
    if (line.starts_with("| `-") && line.substr(0, end).find("`" + option + "`") != std::string::npos)
      return line.substr(end + 3);
  }
  return "";
}

TEST(DeepSpeedOptions, each_is_taken_or_refused_with_a_reason_as_the_table_says) {
  const cli::Command& launch = *cli::find_command("launch");
  for (const std::string& option : kDeepSpeeds) {
    const bool taken = std::any_of(launch.options.begin(), launch.options.end(),
                                   [&](const cli::Option& one) { return one.name == option || one.alias == option; });
    std::string reason;
    for (const cli::RefusedOptions& refused : cli::refused_of(launch))
      for (const std::string& name : cli::split(refused.names, ' '))
        if (name == option) reason = refused.reason;
    EXPECT_NE(taken, !reason.empty()) << option;
    const std::string said = said_in_readme(option);
    EXPECT_FALSE(said.empty()) << option << " is not in the table of tools/README.md";
    EXPECT_EQ(said.starts_with("refused: "), !taken) << option << ": " << said;
  }
}

}  // namespace
}  // namespace drivetrain::program
