// Rendezvous: who am I, stores between threads and processes, who is missing, who runs something else.
#include <map>

#include "base/rank_variables.h"
#include "conformance/communicator/processes.h"
#include "rendezvous/gather_values.h"
#include "rendezvous/rendezvous.h"
#include "support/waiting.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;
using Environment = std::map<std::string, std::string>;

RankEnvironment read(const Environment& variables) {
  return read_rank_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" does not say \"" << part << "\"";
}

// ---- environment ----

TEST(RankEnvironment, without_variables_is_one_process) {
  const RankEnvironment env = read({});
  EXPECT_EQ(env.rank, 0);
  EXPECT_EQ(env.world_size, 1);
  EXPECT_EQ(env.local_size, 1);
}

TEST(RankEnvironment, reads_the_usual_variables) {
  const RankEnvironment env = read({{"RANK", "5"},
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
  EXPECT_EQ(read(variables).listen_fd, 7);
  EXPECT_EQ(read(variables).news_fd, 8);
  variables["RANK"] = "1";
  EXPECT_EQ(read(variables).listen_fd, -1);
  EXPECT_EQ(read(variables).news_fd, -1);
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
  const RankEnvironment env = read(variables);
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
  expect_part(error_of([&] { read(variables); }), "DRIVETRAIN_FLIGHT_FD=9x: wanted a descriptor that is open");
}

TEST(RankEnvironment, reads_other_launchers) {
  const RankEnvironment ompi = read({{"OMPI_COMM_WORLD_RANK", "1"},
                                     {"OMPI_COMM_WORLD_SIZE", "2"},
                                     {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_EQ(ompi.rank, 1);
  EXPECT_EQ(ompi.local_size, 2);
  EXPECT_EQ(ompi.master_addr, "127.0.0.1");  // all on this host
  EXPECT_EQ(ompi.launcher_rank_variable, "OMPI_COMM_WORLD_RANK");
  const RankEnvironment hydra =
      read({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_TRUE(hydra.local_known);
  EXPECT_EQ(hydra.launcher_rank_variable, "PMI_RANK");
  const RankEnvironment pmi = read({{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MASTER_ADDR", "a"}});
  EXPECT_EQ(pmi.rank, 2);
  EXPECT_FALSE(pmi.local_known);
  const RankEnvironment slurm = read(
      {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "1"}, {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}});
  EXPECT_EQ(slurm.rank, 3);
  EXPECT_EQ(slurm.world_size, 4);
  EXPECT_EQ(slurm.master_addr, "10.0.0.1");
}

TEST(RankEnvironment, the_number_of_ranks_has_a_source_and_a_remedy) {
  const auto said = [](const Environment& variables) { return who_said(read(variables)); };
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
    read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}});  // a batch script without srun sets no address
    ADD_FAILURE() << "no address, no error";
  } catch (const Error& e) {
    expect_part(e.what(), "SLURM_NTASKS=8 and SLURM_PROCID=0");
    expect_part(e.what(), "MASTER_ADDR is not set");
  }
}

TEST(RankEnvironment, refuses_launchers_that_contradict_each_other) {
  const auto refusal = [](const Environment& variables) {
    try {
      read(variables);
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
  const RankEnvironment env = read({{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "localhost"}});
  EXPECT_EQ(env.local_rank, 2);
  EXPECT_EQ(env.local_size, 4);
}

TEST(RankEnvironment, a_port_that_was_named_is_used) {
  Environment variables = {{"PMI_RANK", "0"},
                           {"PMI_SIZE", "2"},
                           {"MPI_LOCALRANKID", "0"},
                           {"MPI_LOCALNRANKS", "2"},
                           {"MASTER_PORT", "1234"}};
  EXPECT_EQ(read(variables).launcher_rank_variable, "");
  EXPECT_EQ(read(variables).master_port, 1234);
  variables.erase("MASTER_PORT");
  variables["MASTER_ADDR"] = "node1";
  EXPECT_EQ(read(variables).launcher_rank_variable, "");
  EXPECT_EQ(
      read({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}}).launcher_rank_variable,
      "");
}

TEST(RankEnvironment, the_runs_secret_is_read_and_never_told) {
  Environment variables = {{"RANK", "1"},
                           {"WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "a"},
                           {"DRIVETRAIN_RUN_TOKEN", "0123456789abcdef"},
                           {"DRIVETRAIN_MASTER_LISTENS", "1"}};
  EXPECT_EQ(read(variables).token, "0123456789abcdef");
  EXPECT_TRUE(read(variables).master_listens);
  variables["DRIVETRAIN_RUN_TOKEN"] = "easy to guess";
  const std::string error = error_of([&] { read(variables); });
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
      read(variables);
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

// ---- stores ----

void expect_a_store(Store& mine, Store& other) {
  mine.set("a", std::string("x\0y", 3));
  EXPECT_EQ(other.get("a", deadline_s()), std::string("x\0y", 3));
  EXPECT_TRUE(other.has("a"));
  EXPECT_FALSE(other.has("b"));
  EXPECT_EQ(mine.add("n", 2), 2);
  EXPECT_EQ(other.add("n", -5), -3);
  expect_part(error_of([&] { other.get("c", 0.05); }), "no rank set \"c\" in the store");
  std::thread late([&] {
    let_pass(0.05);  // Waits: the other thread waits by then
    mine.set("late", "now");
  });
  EXPECT_EQ(other.get("late", deadline_s()), "now");
  late.join();
}

TEST(Store, local_store_keeps_and_waits) {
  const auto store = make_local_store();
  expect_a_store(*store, *store);
}

// Both ends in this process; the ranks are made at once, since the client waits for the server.
struct Pair {
  Pair() {
    std::thread client([this] { other = make_store(listener.environment(1, 2), deadline_s()); });
    mine = make_store(listener.environment(0, 2), deadline_s());
    client.join();
  }
  Listener listener;
  std::shared_ptr<Store> mine, other;
};

TEST(Store, tcp_store_takes_over_the_launchers_socket) {
  Pair pair;
  expect_a_store(*pair.mine, *pair.other);
  // The server waits for its last client, a second at most. That it waits no longer is not looked at: a busy machine
  // may take as long.
  std::thread leave([&] { pair.other.reset(); });
  pair.mine.reset();
  leave.join();
}

TEST(Store, tcp_store_says_when_rank_zero_has_ended) {
  Pair pair;
  pair.mine.reset();
  expect_part(error_of([&] { pair.other->add("n", 1); }), "is gone, so rank 0 has ended");
}

TEST(Store, tcp_store_names_the_address_where_nobody_listens) {
  RankEnvironment env = Listener().environment(1, 2);
  env.master_port = 1;
  const std::string closed = error_of([&] { make_store(env, 0.2); });
  expect_part(closed, "rank 1: rank 0 did not open 127.0.0.1:1");
  expect_part(closed, "Look at rank 0");
  env.master_addr = "no.such.host.invalid";
  expect_part(error_of([&] { make_store(env, 0.2); }), "no.such.host.invalid:1");
}

TEST(Store, tcp_store_names_a_port_in_use) {
  const Listener taken;
  RankEnvironment env = taken.environment(0, 2);
  env.listen_fd = -1;
  expect_part(error_of([&] { make_store(env, 1); }), concat("cannot listen on MASTER_PORT ", taken.port));
}

// ---- arrival and sameness ----

using Meeting = std::function<void(Store&, RankEnvironment&)>;

// What each of n ranks, as threads, threw; ranks for which there is no meeting stay away.
std::vector<std::string> meet(int64_t n, const std::map<int64_t, Meeting>& meetings) {
  const auto store = make_local_store();
  std::vector<std::string> errors(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (const auto& [rank, meeting] : meetings)
    threads.emplace_back([&, r = rank, m = meeting] {
      RankEnvironment env{.rank = r, .world_size = n, .local_known = false};
      errors[static_cast<size_t>(r)] = error_of([&] { m(*store, env); });
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(Rendezvous, everybody_arrives_and_finds_its_place_on_the_host) {
  const Meeting come = [](Store& store, RankEnvironment& env) {
    find_local_ranks(store, env, deadline_s());
    EXPECT_EQ(env.local_rank, env.rank);
    EXPECT_EQ(env.local_size, 3);
    check_arrival(store, env, deadline_s());
    check_same(store, env, parse_json(R"({"a": {"b": [1, 2]}, "c": "x"})", "test"));
  };
  for (const std::string& error : meet(3, {{0, come}, {1, come}, {2, come}})) EXPECT_EQ(error, "");
}

TEST(Rendezvous, missing_ranks_are_named_by_all_that_came) {
  const Meeting come = [](Store& store, RankEnvironment& env) {
    if (env.rank == 0) store.get("rendezvous/arrived/1", deadline_s());
    check_arrival(store, env, env.rank == 0 ? 0.2 : kNoTimeout);
  };
  const std::vector<std::string> errors = meet(4, {{0, come}, {1, come}});
  expect_part(errors[0], "ranks 2 and 3 of 4 did not arrive within 0.2 s");
  EXPECT_EQ(errors[0], errors[1]);
}

TEST(Rendezvous, a_rank_that_stopped_before_the_start_is_named_at_once) {
  Pair pair;
  std::thread leave([&] { pair.other.reset(); });
  leave.join();
  RankEnvironment env = pair.listener.environment(0, 2);
  expect_part(error_of([&] { check_arrival(*pair.mine, env, kNoTimeout); }), "rank 1 of 2 stopped before the start");
}

TEST(Rendezvous, different_configurations_are_named_with_key_values_and_ranks) {
  const auto with = [](const std::string& json) {
    return
        [json](Store& store, RankEnvironment& env) { check_same(store, env, parse_json(json, "test"), deadline_s()); };
  };
  const auto errors = meet(4, {{0, with(R"({"optimizer": {"params": {"lr": 0.001, "betas": [0.9, 0.99]}}})")},
                               {1, with(R"({"optimizer": {"params": {"betas": [0.9, 0.99], "lr": 0.001}}})")},
                               {2, with(R"({"optimizer": {"params": {"lr": 0.001, "betas": [0.9, 0.95]}}})")},
                               {3, with(R"({"optimizer": {"params": {"lr": 0.002, "betas": [0.9, 0.99]}}})")}});
  for (const std::string& error : errors)
    expect_part(
        error, "\"optimizer.params.betas[1]\" is 0.99 on rank 0 and 0.95 on rank 2 (ranks 2 and 3 differ from rank 0)");
}

TEST(Rendezvous, ranks_that_do_not_tell_their_configuration_or_values_are_named) {
  const Meeting facts = [](Store& store, RankEnvironment& env) {
    if (env.rank == 0) store.get("rendezvous/facts/2", deadline_s());
    check_same(store, env, Value::object(), 0.2);
  };
  const auto errors = meet(4, {{0, facts}, {2, facts}});
  expect_part(errors[0], "ranks 1 and 3 did not say what configuration and libraries they have within 0.2 s");
  expect_part(errors[2], "rank 0 did not compare the ranks' configurations");
  const Meeting tell = [](Store& store, RankEnvironment& env) {
    if (env.rank == 0) store.get("memory/1", deadline_s());
    gather_values(store, "memory", env, Value::object(), 0.2);
  };
  expect_part(meet(4, {{0, tell}, {1, tell}})[0], "ranks 2 and 3 did not tell \"memory\" within 0.2 s");
}

TEST(Rendezvous, what_stops_one_rank_ends_the_waits_of_all) {
  const Meeting wait = [](Store& store, RankEnvironment& env) {
    telling_others(store, env, [&] { store.get("never", kNoTimeout); });
  };
  const Meeting stop = [](Store& store, RankEnvironment& env) {
    telling_others(store, env, [] { throw Error(ErrorCode::io, "no such file\nand a trace"); });
  };
  const std::vector<std::string> errors = meet(3, {{0, wait}, {1, wait}, {2, stop}});
  EXPECT_EQ(errors[0], "rank 2 stopped: no such file");
  EXPECT_EQ(errors[1], "rank 2 stopped: no such file");
}

TEST(Rendezvous, the_first_difference_has_a_path) {
  const auto between = [](const char* a, const char* b) {
    const auto d = first_difference(parse_json(a, "a"), parse_json(b, "b"));
    return d ? d->path + ": " + d->a + " | " + d->b : "equal";
  };
  EXPECT_EQ(between(R"({"a": 1, "b": 2})", R"({"b": 2, "a": 1})"), "equal");
  EXPECT_EQ(between(R"({"a": {"b": 1}})", R"({"a": {}})"), "a.b: 1 | absent");
  EXPECT_EQ(between(R"({"a": {}})", R"({"a": {"b": "x"}})"), "a.b: absent | \"x\"");
  EXPECT_EQ(between(R"({"a": [1]})", R"({"a": [1, 2]})"), "a[1]: absent | 2");
  EXPECT_EQ(between(R"({"a": [1]})", R"({"a": true})"), "a: [1] | true");
}

TEST(Rendezvous, two_processes_of_one_rank_are_refused) {
  const auto store = make_local_store();
  const RankEnvironment env{.rank = 0, .world_size = 2};
  store->set("rendezvous/rank/0", "elsewhere 99 2");
  expect_part(error_of([&] { check_arrival(*store, env, 1); }), "two processes call themselves rank 0");
}

TEST(Rendezvous, different_world_sizes_are_refused) {
  const auto store = make_local_store();
  const RankEnvironment env{.rank = 0, .world_size = 2};
  store->set("rendezvous/rank/1", "elsewhere 99 4");
  expect_part(error_of([&] { check_arrival(*store, env, 1); }), "2 on rank 0, 4 on rank 1");
}

}  // namespace
}  // namespace drivetrain
