// The store between processes and those who are not of the run:
// strangers at rank 0's port and programs that play rank 0.
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

#include "base/secret.h"
#include "store/client.h"
#include "store/table_store.h"
#include "support/hosted_store.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

// ---- at rank 0's port ----

TEST(Strangers, junk_is_dropped_and_costs_the_run_nothing) {
  Hosted run;
  const auto other = run.join(1);
  for (const std::string& junk :
       {std::string(200000, '\xff'), std::string("GET / HTTP/1.1\r\nHost: a\r\n\r\n") + std::string(64, ' '),
        std::string(kHelloBytes, '\0')}) {
    const Dialled stranger(run.port);
    stranger.send(junk);
    EXPECT_TRUE(stranger.is_closed());
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
  for (const auto& stranger : strangers) EXPECT_TRUE(stranger->is_closed());
  expect_it_works(*second, *run.rank_0);
}

TEST(Strangers, a_rank_of_another_run_is_told_so_and_costs_this_one_nothing) {
  Hosted run;
  const Said said = said_by([&] { run.join(1, "the secret of another run"); });
  expect_words(said,
               {"rank 1: another run's rank 0 listens at", "DRIVETRAIN_RUN_TOKEN", concat("127.0.0.1:", run.port)});
  const auto other = run.join(1);
  expect_it_works(*other, *run.rank_0);
}

TEST(Strangers, who_knows_a_greeting_but_not_the_secret_stores_nothing) {
  Hosted run;
  const std::string hello = hello_of(kSecret, 1),
                    set = frame_of(StoreRequest{1, StoreRequestKind::set, 0, "evil", "x"});
  for (const bool reflect : {false, true}) {
    const Dialled stranger(run.port);
    stranger.send(hello);
    const std::string welcome = stranger.receive(kWelcomeBytes);
    ASSERT_EQ(read_welcome(kSecret, hello, welcome), Verdict::welcome);
    stranger.send((reflect ? welcome.substr(kWelcomeBytes - kProofBytes) : std::string(kProofBytes, '\0')) + set);
    EXPECT_TRUE(stranger.is_closed());
  }
  // What another connection proved is worth nothing on this one.
  const Dialled first(run.port), second(run.port);
  first.send(hello);
  second.send(hello);
  const std::string proof = proof_of(kSecret, hello, first.receive(kWelcomeBytes));
  second.receive(kWelcomeBytes);
  second.send(proof + set);
  EXPECT_TRUE(second.is_closed());
  EXPECT_FALSE(run.rank_0->has("evil"));
  const auto other = run.join(1);
  expect_it_works(*other, *run.rank_0);
}

TEST(Strangers, a_rank_beyond_the_runs_number_is_told_so_and_counts_for_none) {
  Hosted run(2);
  expect_words(said_by([&] { run.join(2); }), {"calls itself rank 2", "WORLD_SIZE"}, 2);
  const auto rank_1 = run.join(1);
  expect_it_works(*rank_1, *run.rank_0);
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
  EXPECT_EQ(run.rank_0->get("just fits", deadline_s()).size(), large.size() - 1);
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
    expect_words(said_by([&] { run.rank_0->get("x", kNoTimeout); }), {"rank 1 is gone"});
    run.rank_0->set("a", "b");
    EXPECT_EQ(run.rank_0->get("a", deadline_s()), "b");
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

}  // namespace
}  // namespace drivetrain
