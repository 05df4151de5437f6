// The store between processes when ranks stop, die or leave, and where rank 0 listens.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>
#include <utility>

#include <drivetrain/error.h>

#include "base/secret.h"
#include "store/client.h"
#include "store/table_store.h"
#include "support/hosted_store.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

// Rank 0 or another as a process of its own; `body` ends by being killed.
pid_t as_process(const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  try {
    body();
  } catch (const std::exception&) {
  }
  _exit(0);
}
void end_process(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

struct Rank0Process {
  Rank0Process() : listener(listening_socket(port)) {
    pid = as_process([&] {
      RankEnvironment env = environment_at(port, 0, 2);
      env.listen_fd = listener;
      const auto store = make_store(env, deadline_s());
      store->set("there", "yes");
      pause();
    });
    close(listener);
  }
  ~Rank0Process() { end_process(pid); }
  void stop() const {
    kill(pid, SIGSTOP);
    waitpid(pid, nullptr, WUNTRACED);  // until all its threads stand
  }
  void go_on() const { kill(pid, SIGCONT); }
  int64_t port = 0;
  int listener;
  pid_t pid = -1;
};

TEST(Rank0, that_is_stopped_is_named_by_every_call_within_its_time) {
  for (const bool waits_for_a_key : {true, false}) {
    const Rank0Process rank_0;
    const auto store = make_store(environment_at(rank_0.port, 1, 2), 1);
    EXPECT_EQ(store->get("there", deadline_s()), "yes");
    rank_0.stop();
    const Said said =
        said_by([&] { waits_for_a_key ? static_cast<void>(store->get("never", 1)) : store->set("mine", ""); });
    expect_words(said, {"rank 1: rank 0 did not answer", concat("127.0.0.1:", rank_0.port),
                        waits_for_a_key ? "never" : "mine", "stopped or hangs"});
    rank_0.go_on();  // it would answer now: nobody asks it again
    expect_words(said_by([&] { store->has("there"); }), {"rank 0 did not answer"});
  }
}

TEST(Rank0, that_is_stopped_before_it_let_a_rank_in_is_named) {
  const Rank0Process rank_0;
  rank_0.stop();
  expect_words(said_by([&] { make_store(environment_at(rank_0.port, 1, 2), 1); }),
               {"rank 0 did not answer at", "within 1 s"});
}

TEST(Rank0, that_dies_is_noticed_at_once) {
  const Rank0Process rank_0;
  const auto store = make_store(environment_at(rank_0.port, 1, 2), deadline_s());
  std::thread killer([&] { let_pass(0.1), kill(rank_0.pid, SIGKILL); });  // Waits: the other thread waits by then
  const Said said = said_by([&] { store->get("never", kNoTimeout); });
  killer.join();
  expect_words(said, {"rank 1: ", "is gone, so rank 0 has ended", "\"never\""});
}

TEST(Ranks, that_die_end_every_wait_at_once_with_what_they_were_in) {
  int64_t port = 0;
  const int listener = listening_socket(port);
  const pid_t victim = as_process([&] {
    close(listener);
    const auto store = make_store(environment_at(port, 2, 3), deadline_s());
    set_activity(*store, environment_at(port, 2, 3), "building the model");
    store->set("ready", "");
    pause();
  });
  Hosted run(3, port, listener);
  const auto waiting = run.join(1);
  run.rank_0->get("ready", deadline_s());
  std::thread killer([&] { let_pass(0.1), end_process(victim); });  // Waits: the other threads wait by then
  Said at_0;
  std::thread rank_0([&] { at_0 = said_by([&] { run.rank_0->get("never", kNoTimeout); }); });
  const Said at_1 = said_by([&] { waiting->get("never", kNoTimeout); });
  killer.join();
  rank_0.join();
  for (const Said& said : {at_0, at_1})
    expect_words(said, {"rank 2 is gone", "connection", "while it was building the model"});
  expect_words(said_by([&] { waiting->has("never"); }), {"rank 2 is gone"});
  EXPECT_TRUE(waiting->has("ready"));  // what is there can still be read
}

TEST(Ranks, that_leave_by_an_exception_are_named_to_those_who_wait) {
  Hosted run(3);
  const auto waiting = run.join(1);
  std::thread leaves([&] {
    try {
      const auto store = run.join(2);
      throw std::runtime_error("as in a plan");
    } catch (const std::exception&) {
    }
  });
  const Said said = said_by([&] { waiting->get("never", kNoTimeout); });
  leaves.join();
  expect_words(said, {"rank 2 stopped"});
}

// Ranks 0 and 1 of three, and the launcher's news for rank 0; rank 2 has not come.
struct TwoOfThree {
  TwoOfThree() {
    EXPECT_EQ(pipe(news), 0);
    int64_t port = 0;
    const int listener = listening_socket(port);
    RankEnvironment env = environment_at(port, 0, 3);
    env.listen_fd = listener;
    env.news_fd = news[0];
    rank_0 = make_store(env, deadline_s()), waiting = make_store(environment_at(port, 1, 3), deadline_s());
  }
  ~TwoOfThree() { close(news[1]); }
  void tell(const std::string& text) const {
    EXPECT_EQ(write(news[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  int news[2] = {-1, -1};
  std::shared_ptr<Store> rank_0, waiting;
};

TEST(Ranks, that_the_launcher_saw_fail_before_they_came_are_named) {
  TwoOfThree run;
  const std::string line = "rank 2 has ended: killed by signal 9";
  run.tell(line + "\nrank 1");
  EXPECT_EQ(said_by([&] { run.waiting->get("never", kNoTimeout); }).text, line);
  EXPECT_EQ(said_by([&] { run.rank_0->get("never", kNoTimeout); }).text, line);
  close(std::exchange(run.news[1], -1));
  expect_it_works(*run.rank_0, *run.waiting);
}

// It would be waited for. One that came, and ended well, is done; its line may come in parts.
TEST(Ranks, that_ended_well_before_they_came_are_named) {
  TwoOfThree run;
  for (const char* part : {"rank 1 has ended: exit 0\nrank 1 has en", "ded: exit 0\n"}) {
    run.tell(part);
    EXPECT_EQ(said_by([&] { run.waiting->get("never", 0.3); }).text.find("has ended"), std::string::npos);
  }
  run.tell("rank 2 has ended: exit 0\n");
  EXPECT_EQ(said_by([&] { run.waiting->get("never", kNoTimeout); }).text,
            "rank 2 has ended: exit 0 before it had joined the run");
}

TEST(Ranks, hear_the_first_reason_that_anybody_gives) {
  Hosted run(3);
  const auto one = run.join(1), two = run.join(2);
  stop_run(*two, "rank 2 stopped: no such file");
  stop_run(*run.rank_0, "rank 0 stopped: rank 2 stopped");
  for (Store* store : {one.get(), two.get(), run.rank_0.get()})
    EXPECT_EQ(said_by([&] { store->get("never", kNoTimeout); }).text, "rank 2 stopped: no such file");
  run.rank_0.reset();
  EXPECT_EQ(said_by([&] { one->get("never", kNoTimeout); }).text, "rank 2 stopped: no such file");
}

TEST(Ranks, may_ask_while_another_thread_waits) {
  Hosted run;
  const auto other = run.join(1);
  std::string got;
  std::thread waits([&] { got = other->get("late", kNoTimeout); });
  for (int i = 0; i < 200; ++i) EXPECT_EQ(other->add("n", 1), i + 1);
  EXPECT_EQ(run.rank_0->add("n", 0), 200);
  run.rank_0->set("late", "now");
  waits.join();
  EXPECT_EQ(got, "now");
}

TEST(Ranks, that_fail_before_they_were_let_in_still_tell_it) {
  int64_t port = 0;
  const int listener = listening_socket(port);
  std::thread early([&] {
    try {
      const auto store = open_store(environment_at(port, 1, 2));
      throw std::runtime_error("as in its config");
    } catch (const std::exception&) {
    }
  });
  let_pass(0.2);  // Waits: it has failed by then
  RankEnvironment env = environment_at(port, 0, 2);
  env.listen_fd = listener;
  const auto rank_0 = make_store(env, deadline_s());
  expect_words(said_by([&] { rank_0->get("never", kNoTimeout); }), {"rank 1 stopped"});
  early.join();
}

// ---- where rank 0 listens ----

std::vector<std::string> addresses_listening(int64_t port) {
  std::vector<std::string> found;
  char hex[16];
  std::snprintf(hex, sizeof hex, ":%04X", static_cast<unsigned>(port));
  for (const char* name : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream table(name);
    std::string line, number, local, remote, state;
    while (std::getline(table, line)) {
      std::istringstream(line) >> number >> local >> remote >> state;
      if (state == "0A" && local.ends_with(hex)) found.push_back(local.substr(0, local.find(':')));
    }
  }
  return found;
}

int64_t port_now_free() {
  int64_t port = 0;
  close(listening_socket(port));
  return port;
}

TEST(Listening, that_ended_where_a_launcher_had_begun_it_means_that_rank_0_has_ended) {
  RankEnvironment env = environment_at(port_now_free(), 1, 2);
  env.master_listens = true;
  const Said said = said_by([&] { make_store(env, kNoTimeout); });
  expect_words(said, {"rank 1: nothing listens any more on 127.0.0.1:", "so rank 0 has ended"});
}

TEST(Listening, is_on_the_address_that_was_given_alone) {
  for (const std::string host : {"127.0.0.1", "localhost"}) {
    RankEnvironment env = environment_at(port_now_free(), 0, 2);
    env.master_addr = host;
    std::string warning;
    std::thread([&] {
      const auto rank_0 = make_store(env, 1, [&](const std::string& line) { warning = line; });
      const auto found = addresses_listening(env.master_port);
      EXPECT_FALSE(found.empty());
      for (const std::string& address : found)
        EXPECT_TRUE(address == "0100007F" || address == "00000000000000000000000001000000") << address;
    }).join();
    EXPECT_EQ(warning, "");
  }
}

TEST(Listening, is_on_all_addresses_with_a_warning_where_the_given_one_is_another_hosts) {
  RankEnvironment env = environment_at(port_now_free(), 0, 2);
  env.master_addr = "192.0.2.1";  // of documentation
  env.local_known = false;
  std::string warning;
  const auto rank_0 = make_store(env, 1, [&](const std::string& line) { warning = line; });
  for (const std::string& address : addresses_listening(env.master_port))
    EXPECT_EQ(address.find_first_not_of('0'), std::string::npos) << address;
  EXPECT_NE(warning.find("192.0.2.1 is no address of this host"), std::string::npos) << warning;
  EXPECT_NE(warning.find("the run's secret"), std::string::npos) << warning;
}

}  // namespace
}  // namespace drivetrain
