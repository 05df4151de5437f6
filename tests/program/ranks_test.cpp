// Ranks that die, never come, disagree or are told to stop: the others end within seconds and say which.
#include <sys/stat.h>

#include <cstdio>
#include <sstream>

#include "program/background.h"
#include "support/hosted_store.h"

namespace drivetrain::test {
namespace {

// Lines of /proc/net/tcp: "local remote state", addresses in hexadecimal.
std::vector<std::string> sockets_of(const std::string& port, const std::string& wanted_state) {
  char ending[16];
  std::snprintf(ending, sizeof ending, ":%04X", std::stoi(port));
  std::vector<std::string> found;
  std::ifstream table("/proc/net/tcp");
  std::string line, number, local, remote, state;
  while (std::getline(table, line)) {
    std::istringstream(line) >> number >> local >> remote >> state;
    if (state == wanted_state && (local.ends_with(ending) || remote.ends_with(ending))) found.push_back(local);
  }
  return found;
}
std::vector<std::string> addresses_listening(const std::string& port) {
  std::vector<std::string> found = sockets_of(port, "0A");
  for (std::string& address : found) address.resize(address.find(':'));
  return found;
}

// How long ranks wait for one that is stopped; the same for all, and more than the start of one takes beside another's.
const std::string kPatience = std::to_string(whole_seconds(5));

Environment with_token(Environment variables, const std::string& token = "what both ranks of this test know") {
  variables["DRIVETRAIN_RUN_TOKEN"] = token;
  return variables;
}

// Accepts connections, as a stopped process does, and never says a word.
struct Mute {
  Mute() {
    int64_t number = 0;
    fd = listening_socket(number);
    port = std::to_string(number);
  }
  ~Mute() { close(fd); }
  int fd;
  std::string port;
};

class Ranks : public ProgramTest {
 protected:
  std::vector<std::string> words(const std::string& command, const std::vector<std::string>& sets) const {
    std::vector<std::string> list = {program(), command, path("tiny.json")};
    for (const std::string& set : sets) list.insert(list.end(), {"--set", set});
    return list;
  }
  Background start(const Environment& environment, const std::vector<std::string>& sets) const {
    return Background(folder(), words("train", sets), environment);
  }
  // A run without an end, once it has made steps.
  Background running(int ranks, std::vector<std::string> sets = {}) const {
    sets.push_back("train_steps=100000000");
    if (ranks == 3) sets.push_back("train_batch_size=12");
    std::vector<std::string> list = words("launch", sets);
    list.insert(list.end(), {"-n", std::to_string(ranks)});
    Background launch(folder(), list);
    EXPECT_TRUE(launch.wait_for_file(path("run/metrics.jsonl"))) << launch.output();
    return launch;
  }
  // Its data lies at a relative path, which begins where the config does, or in the current folder. Ends without one of
  // its own to write to.
  std::string tiny_text_config() const {
    std::string text = kTiny;
    const auto replace = [&](const std::string& part, const std::string& by) {
      text.replace(text.find(part), part.size(), by);
    };
    replace("\"vocab_size\": 64", "\"vocab_size\": 256");
    replace(R"({"type": "synthetic", "params": {"seq_length": 8}})",
            R"({"type": "text", "params": {"seq_length": 8, "files": ["data/tokens.txt"]}})");
    replace(",\n  \"output_dir\": \"run\"", "");
    return write("elsewhere/text.json", text);
  }
  int pid_of_rank(int rank) const { return test::pid_of_rank(path("tiny.json"), rank); }
};

TEST_F(Ranks, a_rank_that_is_killed_is_named_by_the_others_within_seconds) {
  Background launch = running(4);
  const int victim = pid_of_rank(2);
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  EXPECT_EQ(launch.wait(), 128 + SIGKILL);
  const std::string said = launch.output();
  const std::string lost = concat("rank 2 (pid ", victim, ") died");
  expect_says(said, {"\ndrivetrain: error: ", lost, "drivetrain launch: 2 other ranks said the same as rank 0"});
  EXPECT_EQ(said.find(lost), said.rfind(lost)) << "once is enough: " << said;
  EXPECT_EQ(said.find("in communicator/"), std::string::npos) << "its messages name it already: " << said;
  expect_says(said, {"drivetrain launch: rank 2 failed first: killed by signal 9"});
  expect_nothing_half_written();
}

TEST_F(Ranks, rank_0_that_is_killed_is_named_too) {
  Background launch = running(2);
  ASSERT_EQ(kill(pid_of_rank(0), SIGKILL), 0);
  EXPECT_EQ(launch.wait(), 128 + SIGKILL);
  expect_says(launch.output(), {"[rank 1] drivetrain: error: ", "rank 0 (pid ", ") died", "rank 0 failed first"});
}

TEST_F(Ranks, a_rank_that_is_stopped_is_named_and_nothing_is_left) {
  Background launch = running(3, {"communicator.timeout_s=" + kPatience});
  ASSERT_EQ(kill(pid_of_rank(1), SIGSTOP), 0);
  EXPECT_EQ(launch.wait(), 5) << launch.output();
  expect_says(launch.output(),
              {"drivetrain launch: rank 1 is stopped by signal 19", "within " + kPatience + " s", "rank 1 (pid ",
               ") is stopped by a signal", "drivetrain launch: rank 1 failed first: stopped by signal 19"});
  EXPECT_EQ(launch.output().find("(;"), std::string::npos) << launch.output();
  // Wherever rank 1 was stopped, nobody blames rank 2.
  EXPECT_EQ(launch.output().find("ranks 1 and 2"), std::string::npos) << launch.output();
  EXPECT_TRUE(processes_with(folder()).empty());
}

// Ctrl-Z, or a container that is frozen: all stood still, so nobody was late.
TEST_F(Ranks, a_run_that_stood_still_for_longer_than_its_time_out_goes_on) {
  const int64_t patience_s = whole_seconds(2);
  for (const char* communicator : {"local", "tcp"}) {
    SCOPED_TRACE(communicator);
    Background launch =
        running(2, {concat(R"(communicator={"type":")", communicator, R"(","params":{"timeout_s":)", patience_s, "}}"),
                    concat("hook_timeout_s=", patience_s)});
    launch.signal(SIGTSTP);
    let_pass(2.0 * static_cast<double>(patience_s));  // Waits: longer than anybody waits for another
    launch.signal(SIGCONT);
    const size_t steps = lines_of(path("run/metrics.jsonl"));
    ASSERT_TRUE(eventually([&] { return launch.ended() || lines_of(path("run/metrics.jsonl")) > steps + 3; }));
    ASSERT_FALSE(launch.ended()) << launch.output();
    launch.signal(SIGTERM);
    EXPECT_EQ(launch.wait(), 128 + SIGTERM) << launch.output();
    std::filesystem::remove_all(path("run"));
  }
}

TEST_F(Ranks, limits_of_address_space_and_file_size_leave_room_for_a_run) {
  for (const std::string limit : {"ulimit -v 4000000", "ulimit -f 20000"})
    for (const std::string command : {"train", "launch -n 2"}) {
      const Ran ran = run_shell("cd " + folder() + " && bash -c '" + limit + "; exec " + program() + " " + command +
                                " " + path("tiny.json") + "'");
      EXPECT_EQ(ran.code, 0) << limit << " " << command << ": " << ran.output;
      std::filesystem::remove_all(path("run"));
    }
}

TEST_F(Ranks, a_limit_in_the_way_of_shared_memory_is_named_with_the_figure) {
  const std::string command = program() + " launch -n 2 " + path("tiny.json");
  const Ran ran = run_shell("cd " + folder() + " && bash -c 'ulimit -f 100; exec " + command + "'");
  EXPECT_EQ(ran.code, 4) << ran.output;
  expect_says(ran.output, {"shared memory needs a file of 16777216 bytes", "102400 bytes", "ulimit -f unlimited"});
}

TEST_F(Ranks, too_few_open_files_are_told_before_anything_starts) {
  const Ran ran = run_shell("cd " + folder() + " && bash -c 'ulimit -n 12; exec " + program() + " launch -n 2 " +
                            path("tiny.json") + "'");
  EXPECT_EQ(ran.code, 8) << ran.output;
  expect_says(ran.output, {"2 ranks: each process needs 52 open files", "12 are allowed", "ulimit -n 52"});
  EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(Ranks, a_config_that_can_be_read_once_reaches_every_rank) {
  write("data/tokens.txt", std::string(4000, 'a'));
  const std::string text = tiny_text_config();
  const auto launch_by = [&](const std::string& words) {
    return run_shell("cd " + folder() + " && bash -c '" + words + "'");
  };
  const std::string launch = program() + " launch -n 2 ";
  const Ran piped = launch_by(launch + "<(cat " + text + ") --set output_dir=" + path("piped"));
  EXPECT_EQ(piped.code, 0) << piped.output;
  EXPECT_FALSE(final_weights("piped").empty());
  const Ran named = launch_by("mkfifo pipe && { cat " + text + " > pipe & } && " + launch + "pipe --set train_steps=2");
  EXPECT_EQ(named.code, 0) << named.output;
  EXPECT_FALSE(final_weights("runs/config").empty());
  const Ran wrong = launch_by(launch + "<(echo \"{\")  # " + folder());
  EXPECT_EQ(wrong.code, 2);
  expect_says(wrong.output, {"/dev/fd/", "all ranks said the same"});
}

TEST_F(Ranks, a_launcher_that_is_killed_takes_its_ranks_with_it) {
  Background launch = running(2);
  launch.signal(SIGKILL);
  EXPECT_EQ(launch.wait(), 128 + SIGKILL);
  EXPECT_TRUE(eventually([&] { return processes_with(folder()).empty(); }));
}

TEST_F(Ranks, a_rank_that_never_arrives_is_named_by_rank_0) {
  Background rank = start(environment(0, free_port()), {"rendezvous_timeout_s=1"});
  EXPECT_EQ(rank.wait(), 5);
  expect_says(rank.output(), {"rank 1 of 2 did not arrive within 1 s", "MASTER_ADDR, MASTER_PORT and WORLD_SIZE"});
  EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(Ranks, a_rank_0_that_never_arrives_is_named_with_its_address) {
  const std::string port = free_port();
  Background rank = start(environment(1, port), {"rendezvous_timeout_s=1"});
  EXPECT_EQ(rank.wait(), 5);
  expect_says(rank.output(), {"rank 1: rank 0 did not ", "127.0.0.1:" + port, "within 1 s", "DRIVETRAIN_RUN_TOKEN"});
}

// ---- ranks that stop, fail or die before the first step ----

TEST_F(Ranks, a_rank_0_that_is_stopped_during_the_start_is_named_in_time) {
  const std::string port = free_port();
  Background first = start(with_token(environment(0, port)), {});
  ASSERT_TRUE(eventually([&] { return !addresses_listening(port).empty() || first.ended(); }));
  first.signal(SIGSTOP);
  Background second = start(with_token(environment(1, port)), {"rendezvous_timeout_s=1"});
  EXPECT_EQ(second.wait(), 5) << second.output();
  expect_says(second.output(),
              {"rank 1: rank 0 did not answer at 127.0.0.1:" + port, "within 1 s", "stopped or hangs"});
}

TEST_F(Ranks, a_rank_0_that_is_stopped_in_training_is_named_in_time) {
  const std::string port = free_port();
  const std::vector<std::string> sets{"train_steps=100000000", "communicator.timeout_s=" + kPatience,
                                      "rendezvous_timeout_s=" + kPatience};
  Background first = start(environment(0, port), sets), second = start(environment(1, port), sets);
  ASSERT_TRUE(first.wait_for_file(path("run/metrics.jsonl"))) << first.output();
  first.signal(SIGSTOP);
  EXPECT_EQ(second.wait(), 5) << second.output();
  expect_says(second.output(), {"rank 0", "within " + kPatience + " s"});
}

TEST_F(Ranks, a_port_that_accepts_and_never_answers_is_named_in_time) {
  const Mute listener;
  Background rank = start(with_token(environment(1, listener.port)), {"rendezvous_timeout_s=1"});
  EXPECT_EQ(rank.wait(), 5) << rank.output();
  expect_says(rank.output(),
              {"rank 1: rank 0 did not answer at 127.0.0.1:" + listener.port, "another program", "MASTER_PORT"});
}

TEST_F(Ranks, a_rank_with_another_configuration_tells_why_at_once) {
  const std::string port = free_port();
  Background first = start(environment(0, port), {});
  Background second = start(environment(1, port), {"no_such_key=1"});
  EXPECT_EQ(second.wait(), 2) << second.output();
  EXPECT_EQ(first.wait(), 5) << first.output();
  expect_says(first.output(), {"rank 1 stopped: ", "no_such_key"});
}

// Ranks 0 and 1 of three that wait for rank 2. This test is rank 2: it asks the store who is there, and never arrives.
class TwoOfThree : public Ranks {
 protected:
  Background start_rank(int rank) const {
    Environment of_three = with_token(environment(rank, port_), kSecret);
    of_three["WORLD_SIZE"] = "3";
    return start(of_three, {"train_batch_size=3", concat("rendezvous_timeout_s=", static_cast<int64_t>(kNoTimeout))});
  }
  void wait_until_both_came() {
    as_rank_2_ = make_store(environment_at(std::stoll(port_), 2, 3), deadline_s());
    for (const char* rank : {"0", "1"}) as_rank_2_->get(concat("rendezvous/arrived/", rank), deadline_s());
  }
  const std::string port_ = free_port();
  std::shared_ptr<Store> as_rank_2_;
};

TEST_F(TwoOfThree, of_which_rank_1_is_killed_before_the_first_step_name_it_at_once) {
  Background first = start_rank(0), second = start_rank(1);
  wait_until_both_came();
  second.signal(SIGKILL);
  EXPECT_EQ(first.wait(), 5) << first.output();
  expect_says(first.output(), {"rank 1 is gone", "connection"});
}

TEST_F(TwoOfThree, of_which_rank_0_is_killed_before_the_first_step_notice_it_at_once) {
  Background first = start_rank(0), second = start_rank(1);
  wait_until_both_came();
  first.signal(SIGKILL);
  EXPECT_EQ(second.wait(), 5) << second.output();
  expect_says(second.output(), {"rank 0 has ended"});
}

TEST_F(Ranks, a_rank_that_fails_alone_is_the_culprit_and_the_others_do_not_repeat_why) {
  write("run/metrics.jsonl", "{}\n");  // rank 0 alone looks at the folder
  const Ran ran = launch(4);
  EXPECT_EQ(ran.code, 2) << ran.output;
  expect_says(ran.output, {"holds a run already", "rank 0 failed first: exit 2"});
  EXPECT_EQ(ran.output.find("holds a run already"), ran.output.rfind("holds a run already")) << ran.output;
  EXPECT_EQ(ran.output.find("did not notice"), std::string::npos) << ran.output;
}

// ---- strangers ----

TEST_F(Ranks, that_meet_on_the_loopback_listen_there_alone) {
  const std::string port = free_port();
  Background rank = start(environment(0, port), {});
  ASSERT_TRUE(eventually([&] { return !addresses_listening(port).empty() || rank.ended(); })) << rank.output();
  for (const std::string& address : addresses_listening(port)) EXPECT_EQ(address, "0100007F");
}

TEST_F(Ranks, a_rank_of_another_run_at_the_port_is_told_so_and_costs_the_run_nothing) {
  const std::string port = free_port();
  Background first = start(with_token(environment(0, port)), {});
  Background stray = start(with_token(environment(1, port), "the secret of another run"), {"rendezvous_timeout_s=10"});
  EXPECT_EQ(stray.wait(), 5) << stray.output();
  expect_says(stray.output(), {"rank 1: another run's rank 0 listens at", port, "MASTER_PORT"});
  Background second = start(with_token(environment(1, port)), {});
  EXPECT_EQ(second.wait(), 0) << second.output();
  EXPECT_EQ(first.wait(), 0) << first.output();
}

// The program and its libraries may lie where another user cannot read them, so that one is a shell with sockets.
TEST_F(Ranks, another_user_can_neither_read_where_they_meet_nor_join) {
  const std::string port = free_port(), runtime = path("runtime"), file = runtime + "/drivetrain/at-127.0.0.1-" + port;
  std::filesystem::create_directory(runtime);
  chmod(runtime.c_str(), 0700);
  chmod(folder().c_str(), 0755);
  Environment variables = environment(0, port);
  variables["XDG_RUNTIME_DIR"] = runtime;
  Background first = start(variables, {});
  ASSERT_TRUE(first.wait_for_file(file)) << first.output();
  EXPECT_EQ(std::filesystem::status(runtime + "/drivetrain").permissions(), std::filesystem::perms::owner_all);
  EXPECT_EQ(std::filesystem::status(file).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  if (geteuid() == 0) {  // as another user
    const std::string stranger = "setpriv --reuid=65534 --regid=65534 --clear-groups ";
    const std::string guess =
        "exec 3<>/dev/tcp/127.0.0.1/" + port + "; head -c 200 /dev/zero >&3; cat <&3 2>/dev/null | wc -c";
    EXPECT_NE(run_shell(stranger + "cat " + file).code, 0);
    EXPECT_NE(run_shell(stranger + concat("cat /proc/", first.pid(), "/environ")).code, 0);
    const Ran joined = run_shell(stranger + "bash -c '" + guess + "'");
    EXPECT_EQ(joined.output, "0\n");  // not a byte
  }
  variables["RANK"] = "1";
  Background second = start(variables, {});
  EXPECT_EQ(second.wait(), 0) << second.output();
  EXPECT_EQ(first.wait(), 0) << first.output();
  EXPECT_TRUE(std::filesystem::is_empty(runtime + "/drivetrain"));
}

TEST_F(Ranks, ranks_with_different_configs_are_told_before_the_first_collective) {
  const std::string port = free_port();
  Background first = start(environment(0, port), {"optimizer.lr=1e-3"});
  Background second = start(environment(1, port), {"optimizer.lr=1e-4"});
  EXPECT_EQ(first.wait(), 2);
  EXPECT_EQ(second.wait(), 2);
  for (const Background* rank : {&first, &second})
    expect_says(rank->output(), {"not started alike", "config.optimizer.params.lr", "0.001 on rank 0",
                                 "1e-04 on rank 1", "same configuration file"});
  EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(Ranks, a_signal_ends_the_run_after_its_step_with_final_weights) {
  for (const int number : {SIGINT, SIGTERM}) {
    for (const int ranks : {1, 2}) {
      Background launch = running(ranks);
      launch.signal(number);
      EXPECT_EQ(launch.wait(), 128 + number) << launch.output();
      const size_t steps = read_metrics(path("run")).size();
      expect_says(launch.output(), {concat("stopped after step ", steps, " of 100000000 by signal ", number)});
      expect_says(file_bytes(path("run/log.txt")), {"final weights in ", concat("stopped after step ", steps)});
      EXPECT_FALSE(final_weights("run").empty());
      expect_nothing_half_written();
      std::filesystem::remove_all(path("run"));
    }
  }
}

TEST_F(Ranks, a_signal_to_a_single_process_does_the_same) {
  Background train = start({}, {"train_steps=100000000"});
  ASSERT_TRUE(train.wait_for_file(path("run/metrics.jsonl"))) << train.output();
  train.signal(SIGTERM);
  EXPECT_EQ(train.wait(), 128 + SIGTERM) << train.output();
  EXPECT_FALSE(final_weights("run").empty());
}

TEST_F(Ranks, a_signal_to_one_rank_stops_all_of_them_at_the_same_step) {
  Background launch = running(2);
  ASSERT_EQ(kill(pid_of_rank(1), SIGTERM), 0);
  EXPECT_EQ(launch.wait(), 128 + SIGTERM) << launch.output();
  EXPECT_FALSE(final_weights("run").empty());
}

TEST_F(Ranks, malformed_launcher_variables_are_named_with_their_value) {
  const std::string command = "train " + path("tiny.json");
  const auto refused = [&](const std::string& environment, const std::vector<std::string>& parts) {
    expect_refused(command, 2, parts, environment);
  };
  refused("RANK=x WORLD_SIZE=2", {"environment variable RANK=x", "wanted an integer"});
  refused("RANK=0 WORLD_SIZE=0", {"environment variable WORLD_SIZE=0", "wanted an integer from 1"});
  refused("RANK=1", {"RANK=1 is set but WORLD_SIZE is not", "set both, or neither"});
  refused("WORLD_SIZE=2", {"WORLD_SIZE=2 is set but RANK is not"});
  refused("RANK=2 WORLD_SIZE=2", {"RANK=2 and WORLD_SIZE=2 contradict each other", "0 to 1"});
  refused("RANK=0 WORLD_SIZE=2", {"MASTER_ADDR is not set", "127.0.0.1"});
  refused("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=99999", {"MASTER_PORT=99999", "from 1 to 65535"});
  refused("DRIVETRAIN_LOG=loud", {"DRIVETRAIN_LOG is \"loud\"", "debug, info, warning or error"});
}

}  // namespace
}  // namespace drivetrain::test
