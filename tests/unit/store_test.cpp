// Stores between threads and processes, and ranks that meet: who is missing, who runs something else.
#include <map>

#include "conformance/communicator/processes.h"
#include "rendezvous/gather_values.h"
#include "rendezvous/rendezvous.h"
#include "support/texts.h"
#include "support/waiting.h"

namespace drivetrain {
namespace {

using namespace drivetrain::test;

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
