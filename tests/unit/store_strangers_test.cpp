// The store between processes and those who are not of the run: strangers at rank 0's port, programs that play rank 0,
// and ranks that stop, die or leave.
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

#include <drivetrain/error.h>

#include "compose/rendezvous.h"
#include "store/client.h"
#include "store/secret.h"
#include "store/table_store.h"
#include "support/loopback.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

const std::string kSecret = "what the ranks of this test know";

struct Said {
  std::string text = "no error";
  int code = 0;
  double seconds = 0;
};
Said said_by(const std::function<void()>& action) {
  const auto start = std::chrono::steady_clock::now();
  Said said;
  try {
    action();
  } catch (const Error& e) {
    said.text = e.what(), said.code = static_cast<int>(e.code());
  }
  said.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return said;
}

void expect_words(const Said& said, const std::vector<std::string>& words, int code = 5) {
  EXPECT_EQ(said.code, code) << said.text;
  for (const std::string& word : words)
    EXPECT_NE(said.text.find(word), std::string::npos) << said.text << "\nwanted " << word;
}

RankEnvironment environment_at(int64_t port, int64_t rank, int64_t world_size, const std::string& secret = kSecret) {
  RankEnvironment env{.rank = rank, .world_size = world_size, .local_rank = rank, .local_size = world_size};
  env.master_port = port;
  env.token = secret;
  return env;
}

// Rank 0 of `world_size`, in this process.
struct Hosted {
  explicit Hosted(int64_t ranks = 2) : world_size(ranks), listener(listening_socket(port)) { open(); }
  Hosted(int64_t ranks, int64_t at_port, int socket) : world_size(ranks), port(at_port), listener(socket) { open(); }
  void open() {
    RankEnvironment env = environment_at(port, 0, world_size);
    env.listen_fd = listener;
    rank_0 = make_store(env, 10);
  }
  std::shared_ptr<Store> join(int64_t rank, const std::string& secret = kSecret, double timeout_s = 10) {
    return make_store(environment_at(port, rank, world_size, secret), timeout_s);
  }
  int64_t world_size, port = 0;
  int listener;
  std::shared_ptr<Store> rank_0;
};

void expect_it_works(Store& mine, Store& other) {
  mine.set("works", "yes");
  EXPECT_EQ(other.get("works", 5), "yes");
}

// ---- at rank 0's port ----

TEST(Strangers, junk_is_dropped_and_costs_the_run_nothing) {
  Hosted run;
  const auto other = run.join(1);
  for (const std::string& junk :
       {std::string(200000, '\xff'), std::string("GET / HTTP/1.1\r\nHost: a\r\n\r\n") + std::string(64, ' '),
        std::string(kHelloBytes, '\0')}) {
    const Dialled stranger(run.port);
    stranger.send(junk);
    EXPECT_TRUE(stranger.is_closed(5));
  }
  expect_it_works(*other, *run.rank_0);
}

TEST(Strangers, silence_and_half_a_greeting_keep_no_rank_out_and_end_after_some_seconds) {
  Hosted run(3);
  std::vector<std::unique_ptr<Dialled>> strangers;
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(std::make_unique<Dialled>(run.port));
    if (i % 2) strangers.back()->send(hello_of(kSecret, 1).substr(0, kHelloBytes / 2));
  }
  const auto first = run.join(1), second = run.join(2);
  expect_it_works(*first, *second);
  size_t open = 0;
  for (const auto& stranger : strangers) open += !stranger->is_closed(0);
  EXPECT_LE(open, 140u);  // the oldest went at once
  for (const auto& stranger : strangers) EXPECT_TRUE(stranger->is_closed(10));
  expect_it_works(*second, *run.rank_0);
}

TEST(Strangers, a_rank_of_another_run_is_told_so_and_costs_this_one_nothing) {
  Hosted run;
  const Said said = said_by([&] { run.join(1, "the secret of another run"); });
  expect_words(said,
               {"rank 1: another run's rank 0 listens at", "DRIVETRAIN_RUN_TOKEN", concat("127.0.0.1:", run.port)});
  EXPECT_LT(said.seconds, 3);
  const auto other = run.join(1);
  expect_it_works(*other, *run.rank_0);
}

TEST(Strangers, who_knows_a_greeting_but_not_the_secret_stores_nothing) {
  Hosted run;
  const std::string hello = hello_of(kSecret, 1), set = frame_of(StoreRequest{1, StoreAsks::set, 0, "evil", "x"});
  for (const bool reflect : {false, true}) {
    const Dialled stranger(run.port);
    stranger.send(hello);
    const std::string welcome = stranger.receive(kWelcomeBytes);
    ASSERT_EQ(read_welcome(kSecret, hello, welcome), Verdict::welcome);
    stranger.send((reflect ? welcome.substr(kWelcomeBytes - kProofBytes) : std::string(kProofBytes, '\0')) + set);
    EXPECT_TRUE(stranger.is_closed(5));
  }
  // What another connection proved is worth nothing on this one.
  const Dialled first(run.port), second(run.port);
  first.send(hello);
  second.send(hello);
  const std::string proof = proof_of(kSecret, hello, first.receive(kWelcomeBytes));
  second.receive(kWelcomeBytes);
  second.send(proof + set);
  EXPECT_TRUE(second.is_closed(5));
  EXPECT_FALSE(run.rank_0->has("evil"));
  const auto other = run.join(1);
  expect_it_works(*other, *run.rank_0);
}

TEST(Strangers, a_second_process_of_one_rank_is_refused_and_the_first_goes_on) {
  Hosted run;
  const auto other = run.join(1);
  expect_words(said_by([&] { run.join(1); }), {"two processes call themselves rank 1", "its own RANK"}, 2);
  expect_it_works(*other, *run.rank_0);
}

// ---- bounds ----

TEST(StoreBounds, a_value_that_is_too_large_is_refused_by_name_and_the_store_goes_on) {
  Hosted run;
  const auto other = run.join(1);
  const std::string large((size_t{64} << 20) + 1, 'x');
  for (Store* store : {other.get(), run.rank_0.get()})
    expect_words(said_by([&] { store->set("large", large); }), {"\"large\" has 67108865 bytes", "up to 67108864"});
  expect_words(said_by([&] { other->set(std::string(5000, 'k'), ""); }), {"has 5000 bytes", "up to 4096"});
  other->set("just fits", large.substr(1));
  EXPECT_EQ(run.rank_0->get("just fits", 5).size(), large.size() - 1);
  expect_it_works(*other, *run.rank_0);
}

TEST(StoreBounds, all_values_together_have_room_for_so_much) {
  StoreTable table({.key = 10, .value = 1000, .all = 4000});
  const std::string value(1000, 'x');
  for (int i = 0; i < 100; ++i) table.set("same", value);  // replaced, not kept
  table.set("b", value), table.set("c", value);
  expect_words(said_by([&] { table.set("d", value); }), {"\"d\" has 1000 bytes", "4000 bytes in all"});
  EXPECT_FALSE(table.find("d"));
  table.set("same", "");
  table.set("d", value);
  EXPECT_LE(table.bytes(), 4000u);
  table.set(kStopped, std::string(100000, 'x'));  // there is room for this in any case
  EXPECT_LE(table.stopped().size(), 4096u);
  expect_words(said_by([&] { StoreTable().add("n", 1), table.add("b", 1); }),
               {"\"b\" in the ranks' store is no counter"});
}

TEST(StoreBounds, a_rank_that_sends_what_means_nothing_ends_the_run_and_not_rank_0) {
  for (const std::string& bytes : {std::string("\xff\xff\xff\xff", 4), std::string("\x01\0\0\0x", 5)}) {
    Hosted run;
    const Dialled rank(run.port);
    const std::string hello = hello_of(kSecret, 1);
    rank.send(hello);
    rank.send(proof_of(kSecret, hello, rank.receive(kWelcomeBytes)) + bytes);
    const Said said = said_by([&] { run.rank_0->get("x", 10); });
    expect_words(said, {"rank 1 is gone"});
    EXPECT_LT(said.seconds, 3);
    run.rank_0->set("a", "b");
    EXPECT_EQ(run.rank_0->get("a", 1), "b");
  }
}

// ---- programs that play rank 0 ----

Said join_fake(const std::function<void(Dialled&)>& answer, std::string* heard = nullptr) {
  int64_t port = 0;
  const int listener = listening_socket(port);
  std::atomic<bool> over{false};
  std::thread fake([&] {
    std::vector<std::unique_ptr<Dialled>> open;
    while (!over) {
      pollfd waiting{listener, POLLIN, 0};
      if (poll(&waiting, 1, 20) <= 0) continue;
      open.push_back(std::make_unique<Dialled>(Accepted{accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)}));
      const std::string hello = open.back()->receive(kHelloBytes);
      if (heard) *heard += hello;
      answer(*open.back());
    }
  });
  const Said said = said_by([&] { make_store(environment_at(port, 1, 2), 1); });
  over = true;
  fake.join();
  close(listener);
  return said;
}

TEST(FakeServer, that_says_nothing_is_named_in_time) {
  const Said said = join_fake([](Dialled&) {});
  expect_words(said, {"rank 1: rank 0 did not answer at 127.0.0.1:", "MASTER_PORT", "within 1 s", "stopped or hangs"});
  EXPECT_LT(said.seconds, 4);
}

TEST(FakeServer, that_answers_junk_is_named_and_has_learned_no_secret) {
  std::string heard;
  for (const std::string& junk : {std::string("SSH-2.0-OpenSSH_9.2\r\n"), std::string(5000, 'x')}) {
    const Said said = join_fake([&](Dialled& rank) { rank.send(junk), rank.finish(); }, &heard);
    expect_words(said, {"rank 1: something else", "listens at", "MASTER_PORT"});
  }
  EXPECT_GE(heard.size(), 2 * kHelloBytes);
  EXPECT_EQ(heard.find(kSecret), std::string::npos);
}

TEST(FakeServer, that_knows_the_protocol_and_not_the_secret_is_recognised) {
  const Said said = join_fake([&](Dialled& rank) {
    const std::string hello = hello_of("another", 1);
    rank.send(std::string("DTrank01\x01", 9) + std::string(kNonceBytes + kProofBytes, 'a'));
  });
  expect_words(said, {"rank 1: something else", "does not know the run's secret"});
}

// ---- ranks that stop, die or leave ----

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
      const auto store = make_store(env, 10);
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
  int64_t port = 0;
  int listener;
  pid_t pid = -1;
};

TEST(Rank0, that_is_stopped_is_named_by_every_call_within_its_time) {
  for (const bool waits_for_a_key : {true, false}) {
    const Rank0Process rank_0;
    const auto store = make_store(environment_at(rank_0.port, 1, 2), 1);
    EXPECT_EQ(store->get("there", 5), "yes");
    rank_0.stop();
    const Said said =
        said_by([&] { waits_for_a_key ? static_cast<void>(store->get("never", 1)) : store->set("mine", ""); });
    expect_words(said, {"rank 1: rank 0 did not answer", concat("127.0.0.1:", rank_0.port),
                        waits_for_a_key ? "never" : "mine", "stopped or hangs"});
    EXPECT_LT(said.seconds, 6);
    const Said again = said_by([&] { store->has("there"); });
    expect_words(again, {"rank 0 did not answer"});
    EXPECT_LT(again.seconds, 0.5);
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
  const auto store = make_store(environment_at(rank_0.port, 1, 2), 10);
  std::thread killer([&] { usleep(100000), kill(rank_0.pid, SIGKILL); });
  const Said said = said_by([&] { store->get("never", 20); });
  killer.join();
  expect_words(said, {"rank 1: ", "is gone, so rank 0 has ended", "\"never\""});
  EXPECT_LT(said.seconds, 3);
}

TEST(Ranks, that_die_end_every_wait_at_once_with_what_they_were_in) {
  int64_t port = 0;
  const int listener = listening_socket(port);
  const pid_t victim = as_process([&] {
    close(listener);
    const auto store = make_store(environment_at(port, 2, 3), 10);
    say_where(*store, environment_at(port, 2, 3), "building the model");
    store->set("ready", "");
    pause();
  });
  Hosted run(3, port, listener);
  const auto waiting = run.join(1);
  run.rank_0->get("ready", 10);
  std::thread killer([&] { usleep(100000), end_process(victim); });
  Said at_0;
  std::thread rank_0([&] { at_0 = said_by([&] { run.rank_0->get("never", 20); }); });
  const Said at_1 = said_by([&] { waiting->get("never", 20); });
  killer.join();
  rank_0.join();
  for (const Said& said : {at_0, at_1}) {
    expect_words(said, {"rank 2 is gone", "connection", "while it was building the model"});
    EXPECT_LT(said.seconds, 3);
  }
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
  const Said said = said_by([&] { waiting->get("never", 20); });
  leaves.join();
  expect_words(said, {"rank 2 stopped"});
  EXPECT_LT(said.seconds, 3);
}

TEST(Ranks, that_the_launcher_saw_fail_before_they_came_are_named) {
  int news[2];
  ASSERT_EQ(pipe(news), 0);
  int64_t port = 0;
  const int listener = listening_socket(port);
  RankEnvironment env = environment_at(port, 0, 3);
  env.listen_fd = listener;
  env.news_fd = news[0];
  const auto rank_0 = make_store(env, 10), waiting = make_store(environment_at(port, 1, 3), 10);
  const std::string line = "rank 2 has ended: killed by signal 9", lines = line + "\nrank 1";
  ASSERT_EQ(write(news[1], lines.data(), lines.size()), static_cast<ssize_t>(lines.size()));
  EXPECT_EQ(said_by([&] { waiting->get("never", 20); }).text, line);
  EXPECT_EQ(said_by([&] { rank_0->get("never", 20); }).text, line);
  close(news[1]);
  expect_it_works(*rank_0, *waiting);
}

TEST(Ranks, hear_the_first_reason_that_anybody_gives) {
  Hosted run(3);
  const auto one = run.join(1), two = run.join(2);
  stop_run(*two, "rank 2 stopped: no such file");
  stop_run(*run.rank_0, "rank 0 stopped: rank 2 stopped");
  for (Store* store : {one.get(), two.get(), run.rank_0.get()})
    EXPECT_EQ(said_by([&] { store->get("never", 20); }).text, "rank 2 stopped: no such file");
  run.rank_0.reset();
  EXPECT_EQ(said_by([&] { one->get("never", 20); }).text, "rank 2 stopped: no such file");
}

TEST(Ranks, may_ask_while_another_thread_waits) {
  Hosted run;
  const auto other = run.join(1);
  std::string got;
  std::thread waits([&] { got = other->get("late", 20); });
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
  usleep(200000);
  RankEnvironment env = environment_at(port, 0, 2);
  env.listen_fd = listener;
  const auto rank_0 = make_store(env, 10);
  expect_words(said_by([&] { rank_0->get("never", 10); }), {"rank 1 stopped"});
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
  const Said said = said_by([&] { make_store(env, 20); });
  expect_words(said, {"rank 1: nothing listens any more on 127.0.0.1:", "so rank 0 has ended"});
  EXPECT_LT(said.seconds, 3);
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
