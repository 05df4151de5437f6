// Who a rank is, by the variables of its launcher.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include <drivetrain/testkit/kit/host.h>
#include "base/rank_variables.h"
#include "rendezvous/rendezvous.h"
#include "support/texts.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;
using Environment = std::map<std::string, std::string>;

RankEnvironment environment_of(const Environment& variables) {
  return read_rank_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(RankEnvironment, without_variables_is_one_process) {
  const RankEnvironment env = environment_of({});
  EXPECT_EQ(env.rank, 0);
  EXPECT_EQ(env.world_size, 1);
  EXPECT_EQ(env.local_size, 1);
}

TEST(RankEnvironment, reads_the_usual_variables) {
  const RankEnvironment env = environment_of({{"RANK", "5"},
                                              {"WORLD_SIZE", "8"},
                                              {"LOCAL_RANK", "1"},
                                              {"LOCAL_WORLD_SIZE", "4"},
                                              {"MASTER_ADDR", "node1"},
                                              {"MASTER_PORT", "1234"},
                                              {"SLURM_PROCID", "7"}});
  EXPECT_EQ(env.rank, 5);
  EXPECT_EQ(env.world_size, 8);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.local_size, 4);
  EXPECT_EQ(env.master_addr, "node1");
  EXPECT_EQ(env.master_port, 1234);
  EXPECT_EQ(env.listen_fd, -1);
}

TEST(RankEnvironment, takes_the_listening_socket_on_rank_zero_only) {
  Environment variables = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"DRIVETRAIN_LISTEN_FD", "7"}};
  variables["DRIVETRAIN_NEWS_FD"] = "8";
  EXPECT_EQ(environment_of(variables).listen_fd, 7);
  EXPECT_EQ(environment_of(variables).news_fd, 8);
  variables["RANK"] = "1";
  EXPECT_EQ(environment_of(variables).listen_fd, -1);
  EXPECT_EQ(environment_of(variables).news_fd, -1);
}

TEST(RankEnvironment, what_launch_writes_is_what_a_rank_reads) {
  RankStart told;
  told.rank = 0, told.world_size = 4, told.local_rank = 0, told.local_size = 2;
  told.master_addr = "node1", told.master_port = 1234, told.master_listens = false;
  told.token = "0123456789abcdef", told.launch_id = "mark", told.begun_folder = "/a folder", told.bound_cores = 3;
  told.config_copy = "/copies/a.json", told.config_folder = "/home/me";
  told.listen_fd = 7, told.news_fd = 8, told.flight_fd = 9;
  Environment variables;
  for (const std::string& entry : told.write())
    variables[entry.substr(0, entry.find('='))] = entry.substr(entry.find('=') + 1);
  for (const auto& [name, descriptor] : told.descriptors())
    if (descriptor >= 0) variables[name] = std::to_string(descriptor);
  const RankEnvironment env = environment_of(variables);
  EXPECT_EQ(std::tuple(env.rank, env.world_size, env.local_rank, env.local_size, env.master_addr, env.master_port),
            std::tuple(0, 4, 0, 2, "node1", 1234));
  EXPECT_EQ(std::tuple(env.token, env.listen_fd, env.news_fd, env.master_listens), std::tuple(told.token, 7, 8, false));
  const RankStart start = RankStart::read([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
  EXPECT_EQ(start.master_listens, std::optional(false));
  EXPECT_EQ(std::tuple(start.launch_id, start.begun_folder, start.bound_cores, start.config_copy, start.config_folder,
                       start.restart_points_fd, start.flight_fd),
            std::tuple("mark", "/a folder", 3, "/copies/a.json", "/home/me", -1, 9));
  variables["DRIVETRAIN_FLIGHT_FD"] = "9x";
  expect_part(error_of([&] { environment_of(variables); }),
              "DRIVETRAIN_FLIGHT_FD=9x: wanted a descriptor that is open");
}

TEST(RankEnvironment, reads_other_launchers) {
  const RankEnvironment ompi = environment_of({{"OMPI_COMM_WORLD_RANK", "1"},
                                               {"OMPI_COMM_WORLD_SIZE", "2"},
                                               {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_EQ(ompi.rank, 1);
  EXPECT_EQ(ompi.local_size, 2);
  EXPECT_EQ(ompi.master_addr, "127.0.0.1");  // all on this host
  EXPECT_EQ(ompi.launcher_rank_variable, "OMPI_COMM_WORLD_RANK");
  const RankEnvironment hydra =
      environment_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_TRUE(hydra.local_known);
  EXPECT_EQ(hydra.launcher_rank_variable, "PMI_RANK");
  const RankEnvironment pmi = environment_of({{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MASTER_ADDR", "a"}});
  EXPECT_EQ(pmi.rank, 2);
  EXPECT_FALSE(pmi.local_known);
  const RankEnvironment slurm = environment_of(
      {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "1"}, {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}});
  EXPECT_EQ(slurm.rank, 3);
  EXPECT_EQ(slurm.world_size, 4);
  EXPECT_EQ(slurm.master_addr, "10.0.0.1");
}

TEST(RankEnvironment, the_number_of_ranks_has_a_source_and_a_remedy) {
  const auto said = [](const Environment& variables) { return who_said(environment_of(variables)); };
  const std::string batch = said({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"MASTER_ADDR", "a"}});
  for (const char* part : {"SLURM_NTASKS=8 and SLURM_PROCID=0 say that this is rank 0 of 8", "batch script",
                           "srun drivetrain train", "drivetrain launch"})
    expect_part(batch, part);
  const std::string step = said({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"MASTER_ADDR", "a"}});
  expect_part(step, "SLURM_STEP_NUM_TASKS=2 and SLURM_PROCID=1");
  EXPECT_EQ(step.find("batch script"), std::string::npos);
  expect_part(
      said({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}}),
      "OMPI_COMM_WORLD_SIZE=4 and OMPI_COMM_WORLD_RANK=1 say that this is rank 1 of 4; start all of them by `mpirun");
  expect_part(said({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "a"}}), "PMI_SIZE=2 and PMI_RANK=0");
  const Environment torchrun = {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}};
  expect_part(said(torchrun), "WORLD_SIZE=4 and RANK=3 say that this is rank 3 of 4");
  Environment launch = torchrun;  // its user said how many
  launch["DRIVETRAIN_MASTER_LISTENS"] = "1";
  EXPECT_EQ(said(launch), "");
  EXPECT_EQ(said({}), "");
  try {
    environment_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}});  // a batch script without srun sets no address
    ADD_FAILURE() << "no address, no error";
  } catch (const Error& e) {
    expect_part(e.what(), "SLURM_NTASKS=8 and SLURM_PROCID=0");
    expect_part(e.what(), "MASTER_ADDR is not set");
  }
}

TEST(RankEnvironment, refuses_launchers_that_contradict_each_other) {
  const auto refusal = [](const Environment& variables) {
    try {
      environment_of(variables);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  Environment variables = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  const std::string said = refusal(variables);
  EXPECT_NE(said.find("RANK=0 and PMI_RANK=1 contradict each other"), std::string::npos) << said;
  EXPECT_NE(said.find("unset the variables"), std::string::npos) << said;
  variables["PMI_SIZE"] = "4";  // an MPI around the launcher of this run
  EXPECT_EQ(refusal(variables), "");
  variables["PMI_SIZE"] = "2", variables["DRIVETRAIN_MASTER_LISTENS"] = "1";  // one of several of our own
  EXPECT_EQ(refusal(variables), "");
  const Environment pmix = {
      {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"MASTER_ADDR", "a"}, {"PMIX_RANK", "0"}};
  EXPECT_NE(refusal(pmix).find("SLURM_PROCID=1 and PMIX_RANK=0 contradict"), std::string::npos) << refusal(pmix);
}

TEST(RankEnvironment, on_the_loopback_all_ranks_are_local) {
  const RankEnvironment env = environment_of({{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "localhost"}});
  EXPECT_EQ(env.local_rank, 2);
  EXPECT_EQ(env.local_size, 4);
}

TEST(RankEnvironment, a_port_that_was_named_is_used) {
  Environment variables = {{"PMI_RANK", "0"},
                           {"PMI_SIZE", "2"},
                           {"MPI_LOCALRANKID", "0"},
                           {"MPI_LOCALNRANKS", "2"},
                           {"MASTER_PORT", "1234"}};
  EXPECT_EQ(environment_of(variables).launcher_rank_variable, "");
  EXPECT_EQ(environment_of(variables).master_port, 1234);
  variables.erase("MASTER_PORT");
  variables["MASTER_ADDR"] = "node1";
  EXPECT_EQ(environment_of(variables).launcher_rank_variable, "");
  EXPECT_EQ(environment_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}})
                .launcher_rank_variable,
            "");
}

TEST(RankEnvironment, the_runs_secret_is_read_and_never_told) {
  Environment variables = {{"RANK", "1"},
                           {"WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "a"},
                           {"DRIVETRAIN_RUN_TOKEN", "0123456789abcdef"},
                           {"DRIVETRAIN_MASTER_LISTENS", "1"}};
  EXPECT_EQ(environment_of(variables).token, "0123456789abcdef");
  EXPECT_TRUE(environment_of(variables).master_listens);
  variables["DRIVETRAIN_RUN_TOKEN"] = "easy to guess";
  const std::string error = error_of([&] { environment_of(variables); });
  expect_part(error, "DRIVETRAIN_RUN_TOKEN has 13 characters: wanted at least 16");
  EXPECT_EQ(error.find("easy"), std::string::npos) << error;
}

TEST(RankEnvironment, children_do_not_inherit_the_runs_secret) {
  const std::map<std::string, std::string> variables = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"DRIVETRAIN_RUN_TOKEN", "0123456789abcdef"}};
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  EXPECT_EQ(read_rank_environment().token, "0123456789abcdef");
  EXPECT_EQ(getenv("DRIVETRAIN_RUN_TOKEN"), nullptr);
  EXPECT_EQ(read_rank_environment().token, "0123456789abcdef");  // for whoever asks again
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
}

TEST(RankEnvironment, wrong_variables_are_named_with_their_value) {
  const auto error = [](const Environment& variables) {
    try {
      environment_of(variables);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::config);
      return std::string(e.what());
    }
    return std::string("no error");
  };
  expect_part(error({{"RANK", "1x"}, {"WORLD_SIZE", "2"}}), "RANK=1x: wanted an integer from 0");
  expect_part(error({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), "RANK=-1");
  expect_part(error({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), "WORLD_SIZE=0");
  expect_part(error({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "RANK=2 and WORLD_SIZE=2 contradict each other");
  expect_part(error({{"RANK", "1"}}), "RANK=1 is set but WORLD_SIZE is not");
  expect_part(error({{"WORLD_SIZE", "2"}}), "WORLD_SIZE=2 is set but RANK is not");
  expect_part(error({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), "MASTER_ADDR is not set");
  expect_part(error({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}}),
              "MASTER_ADDR is not set");  // several hosts
  expect_part(error({{"PMIX_RANK", "1"}}), "PMIX_RANK=1 says that a launcher started several ranks");
  expect_part(error({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}}),
              "MASTER_PORT=70000");
  expect_part(
      error({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "1"}, {"MASTER_ADDR", "a"}}),
      "LOCAL_RANK=1 and LOCAL_WORLD_SIZE=1");
}

}  // namespace
}  // namespace drivetrain
