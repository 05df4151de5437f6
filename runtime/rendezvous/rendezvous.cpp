// Is everybody there, and does everybody run the same thing?
#include "rendezvous/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>
#include <vector>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/communicator/rank_list.h>
#include <drivetrain/toolkit/host.h>
#include <drivetrain/toolkit/standstill.h>

#include "store/table.h"

namespace drivetrain {
namespace {

using toolkit::rank_list;

using RendezvousClock = std::chrono::steady_clock;

constexpr double kRank0MayTakeS = 2;
constexpr double kLeastS = 0.5;  // for each of many answers, where this process stood still and the time is over

std::string rank_key(const char* what, int64_t rank) { return concat("rendezvous/", what, "/", rank); }

std::vector<int64_t> ranks_from(int64_t first, int64_t world_size) {
  std::vector<int64_t> ranks;
  for (int64_t rank = first; rank < world_size; ++rank) ranks.push_back(rank);
  return ranks;
}

struct Announcement {
  std::string host;
  int64_t pid = 0, world_size = 0;
  std::string text() const { return concat(host, " ", pid, " ", world_size); }
};

Announcement announcement_of(Store& store, int64_t rank, double timeout_s) {
  Announcement a;
  std::istringstream(store.get(rank_key("rank", rank), timeout_s)) >> a.host >> a.pid >> a.world_size;
  return a;
}

Announcement own_announcement(const RankEnvironment& env) { return {host_name(), getpid(), env.world_size}; }

// Another process that calls itself by our rank, or that counts the world differently. Of one rank, if it has come.
void check_announcement(Store& store, const RankEnvironment& env, int64_t rank, double timeout_s) {
  if (!store.has(rank_key("rank", rank))) return;
  const Announcement own = own_announcement(env), other = announcement_of(store, rank, timeout_s);
  if (rank == env.rank && (other.host != own.host || other.pid != own.pid))
    throw fail(ErrorCode::config, "two processes call themselves rank ", rank, ": ", own.pid, " on ", own.host, " and ",
               other.pid, " on ", other.host, "; each needs its own RANK", who_said(env));
  if (other.world_size != env.world_size)
    throw fail(ErrorCode::config, "ranks were started with different world sizes: ", env.world_size, " on rank ",
               env.rank, ", ", other.world_size, " on rank ", rank, who_said(env));
}

// Rank 0, which has the table, looks at all ranks; the others at it and at themselves. So the questions that rank 0
// answers are a few of each rank, however many ranks there are.
void check_announcements(Store& store, const RankEnvironment& env, double timeout_s) {
  if (env.rank != 0) check_announcement(store, env, env.rank, timeout_s);
  for (int64_t rank = 0; rank < (env.rank == 0 ? env.world_size : 1); ++rank)
    check_announcement(store, env, rank, timeout_s);
}

void announce_rank(Store& store, const RankEnvironment& env, double timeout_s) {
  const std::string key = rank_key("rank", env.rank);
  if (!store.has(key)) store.set(key, own_announcement(env).text());
  check_announcements(store, env, timeout_s);
}

// Somebody left in order before it came: nobody will set its key.
void check_none_left(Store& store, const RankEnvironment& env, const char* name, const std::vector<int64_t>& missing) {
  if (!store.has(kLeft)) return;
  for (const int64_t rank : missing)
    if (store.has(concat(kLeft, "/", rank)) && !store.has(rank_key(name, rank)))
      throw fail(ErrorCode::communication, "rank ", rank, " of ", env.world_size,
                 " stopped before the start; its own message says why");
}

// On rank 0: waits until every rank has set its key of this name.
void wait_for_all(Store& store, const RankEnvironment& env, const char* name, double timeout_s) {
  auto deadline = RendezvousClock::now() + std::chrono::duration<double>(timeout_s);
  std::vector<int64_t> missing = ranks_from(0, env.world_size);
  const auto came = [&](int64_t rank) { return store.has(rank_key(name, rank)); };
  for (auto pause = std::chrono::microseconds(200);; pause = std::min(2 * pause, std::chrono::microseconds(20000))) {
    while (!missing.empty() && came(missing.back())) missing.pop_back();
    if (missing.empty()) return;
    check_none_left(store, env, name, missing);
    if (RendezvousClock::now() > deadline) break;
    deadline += standstill_in([&] { std::this_thread::sleep_for(pause); });
  }
  std::erase_if(missing, came);
  const std::string message = concat(rank_list(missing), " of ", env.world_size, " did not arrive within ", timeout_s,
                                     " s; look there for an earlier error, and check that all were started with this "
                                     "MASTER_ADDR, MASTER_PORT and WORLD_SIZE",
                                     who_said(env));
  stop_run(store, message);
  throw Error(ErrorCode::communication, message);
}

std::string joined(const std::string& path, const std::string& key) { return path.empty() ? key : path + "." + key; }

std::optional<Difference> difference_at(const Value& a, const Value& b, const std::string& path);

std::optional<Difference> object_difference(const Value& a, const Value& b, const std::string& path) {
  for (const auto& member : a.members()) {
    const Value* other = b.find(member.key);
    if (other == nullptr) return Difference{joined(path, member.key), member.value.to_json(), "absent"};
    if (auto found = difference_at(member.value, *other, joined(path, member.key))) return found;
  }
  for (const auto& member : b.members())
    if (a.find(member.key) == nullptr) return Difference{joined(path, member.key), "absent", member.value.to_json()};
  return std::nullopt;
}

std::optional<Difference> array_difference(const Value& a, const Value& b, const std::string& path) {
  const size_t length = std::max(a.items().size(), b.items().size());
  for (size_t i = 0; i < length; ++i) {
    const std::string place = concat(path, "[", i, "]");
    if (i >= a.items().size()) return Difference{place, "absent", b.items()[i].to_json()};
    if (i >= b.items().size()) return Difference{place, a.items()[i].to_json(), "absent"};
    if (auto found = difference_at(a.items()[i], b.items()[i], place)) return found;
  }
  return std::nullopt;
}

std::optional<Difference> difference_at(const Value& a, const Value& b, const std::string& path) {
  if (a.is_object() && b.is_object()) return object_difference(a, b, path);
  if (a.is_array() && b.is_array()) return array_difference(a, b, path);
  if (a.to_json() == b.to_json()) return std::nullopt;
  return Difference{path, a.to_json(), b.to_json()};
}

// Rank 0's judgement over all facts: empty if they are the same.
std::string compare_facts(Store& store, const RankEnvironment& env, const Value& facts, double timeout_s) {
  std::vector<int64_t> odd;
  Difference first;
  const std::string own = facts.to_json();
  const auto others = values_of_ranks(
      store, ranks_from(1, env.world_size), [](int64_t rank) { return rank_key("facts", rank); },
      "say what configuration and libraries they have", timeout_s);
  for (int64_t rank = 1; rank < env.world_size; ++rank) {
    const std::string& theirs = others[static_cast<size_t>(rank - 1)];
    if (theirs == own) continue;  // so that many ranks cost little
    const auto difference = first_difference(facts, parse_json(theirs, rank_key("facts", rank)));
    if (!difference) continue;
    if (odd.empty()) first = *difference;
    odd.push_back(rank);
  }
  if (odd.empty()) return "";
  return concat("the ranks were not started alike: \"", first.path, "\" is ", first.a, " on rank 0 and ", first.b,
                " on rank ", odd.front(), odd.size() == 1 ? "" : concat(" (", rank_list(odd), " differ from rank 0)"),
                ". Give every rank the same configuration file, options and libraries.");
}

}  // namespace

std::vector<std::string> values_of_ranks(Store& store, const std::vector<int64_t>& ranks,
                                         const std::function<std::string(int64_t rank)>& key_of,
                                         const std::string& wanted, double timeout_s) {
  const auto deadline = RendezvousClock::now() + std::chrono::duration<double>(timeout_s);
  std::vector<std::string> values;
  try {
    for (const int64_t rank : ranks) {
      const double left_s = std::chrono::duration<double>(deadline - RendezvousClock::now()).count();
      values.push_back(store.get(key_of(rank), std::max(left_s, kLeastS)));
    }
  } catch (const Error&) {
    std::vector<int64_t> missing = ranks;
    std::erase_if(missing,
                  [&](int64_t rank) { return store.has(key_of(rank)); });  // throws where time was not the cause
    if (missing.empty()) throw;
    throw fail(ErrorCode::communication, rank_list(missing), " did not ", wanted, " within ", timeout_s,
               " s; look there for an earlier error, or for a process that is stopped or hangs");
  }
  return values;
}

std::optional<Difference> first_difference(const Value& a, const Value& b) { return difference_at(a, b, ""); }

namespace {

// Rank 0 may wait as long for others, and then says for whom.
std::string value_of_rank_0(Store& store, const RankEnvironment& env, const char* name, const std::string& wanted,
                            double timeout_s) {
  const auto key_of = [name](int64_t) { return concat("rendezvous/", name); };
  return values_of_ranks(store, {0}, key_of, wanted, env.rank == 0 ? timeout_s : timeout_s + kRank0MayTakeS).front();
}

}  // namespace

void find_local_ranks(Store& store, RankEnvironment& env, double timeout_s) {
  announce_rank(store, env, timeout_s);
  if (env.local_known) return;
  if (env.rank == 0) {
    wait_for_all(store, env, "rank", timeout_s);
    std::string hosts;
    for (int64_t rank = 0; rank < env.world_size; ++rank) hosts += announcement_of(store, rank, timeout_s).host + "\n";
    store.set("rendezvous/hosts", hosts);
  }
  const std::string own = own_announcement(env).host;
  std::istringstream hosts(value_of_rank_0(store, env, "hosts", "say which rank is on which host", timeout_s));
  env.local_rank = env.local_size = 0;
  std::string host;
  for (int64_t rank = 0; std::getline(hosts, host); ++rank) {
    if (host != own) continue;
    if (rank < env.rank) ++env.local_rank;
    ++env.local_size;
  }
  env.local_known = true;
}

void check_arrival(Store& store, const RankEnvironment& env, double timeout_s) {
  announce_rank(store, env, timeout_s);
  store.set(rank_key("arrived", env.rank), "");
  if (env.rank == 0) {
    wait_for_all(store, env, "arrived", timeout_s);
    check_announcements(store, env, timeout_s);
    store.set("rendezvous/all", "");
  } else {
    value_of_rank_0(store, env, "all", "say that all ranks are here", timeout_s);
    check_announcements(store, env, timeout_s);
  }
}

void check_same(Store& store, const RankEnvironment& env, const Value& facts, double timeout_s) {
  if (env.world_size == 1) return;
  if (env.rank == 0)
    store.set("rendezvous/verdict", compare_facts(store, env, facts, timeout_s));
  else
    store.set(rank_key("facts", env.rank), facts.to_json());
  const std::string verdict = value_of_rank_0(store, env, "verdict", "compare the ranks' configurations", timeout_s);
  if (!verdict.empty()) throw Error(ErrorCode::config, verdict);
}

}  // namespace drivetrain
