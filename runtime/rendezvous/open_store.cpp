// Which store the ranks of a run share, and how they come to it.
#include <drivetrain/error.h>

#include "base/secret.h"
#include "rendezvous/rendezvous.h"
#include "store/client.h"
#include "store/rendezvous_file.h"
#include "store/table_store.h"

namespace drivetrain {
namespace {

constexpr double kTellOthersS = 1;
constexpr const char* kAddress = "drivetrain/address/";

std::string address_text(const RankEnvironment& env) {
  if (!env.launcher_rank_variable.empty()) return "the port that it chose on 127.0.0.1";
  return concat(env.master_addr, ":", env.master_port, " (MASTER_ADDR:MASTER_PORT)");
}

bool on_one_host(const RankEnvironment& env) { return env.local_known && env.local_size == env.world_size; }

// Null: rank 0's port and the run's secret were given to all ranks.
std::shared_ptr<RendezvousFile> rendezvous_file_of(const RankEnvironment& env) {
  if (!env.launcher_rank_variable.empty())
    return std::make_shared<RendezvousFile>(RendezvousFile::of_launcher(env.launcher_rank_variable));
  if (!env.token.empty()) return nullptr;
  return std::make_shared<RendezvousFile>(
      RendezvousFile::of_address(env.master_addr, env.master_port, on_one_host(env)));
}

std::shared_ptr<Store> serve_others(const RankEnvironment& env, const std::function<void(const std::string&)>& warn) {
  int64_t port = env.master_port;
  ListeningSockets listening;
  if (!env.launcher_rank_variable.empty())
    listening.sockets = {listen_on_loopback(port)};
  else if (env.listen_fd >= 0)
    listening.sockets = {env.listen_fd};
  else
    listening = listen_at(env.master_addr, port, on_one_host(env));
  if (warn && !listening.warning.empty()) warn(listening.warning);
  const std::string secret = env.token.empty() ? new_secret() : env.token;
  const auto file = rendezvous_file_of(env);
  const std::string address = env.launcher_rank_variable.empty() ? address_text(env) : concat("127.0.0.1:", port);
  // The file goes once all have read it, or with the store.
  auto store =
      std::make_shared<Rank0Store>(address, ServedBy{listening.sockets, env.news_fd, secret, env.world_size, [file] {
                                                       if (file) file->close();
                                                     }});
  if (file) file->write({port, secret});
  return store;
}

FindServer finder(const RankEnvironment& env) {
  const ServerPlace given{env.master_addr, env.master_port, env.token, false, env.master_listens};
  const auto file = rendezvous_file_of(env);
  if (!file) return [given](std::string&) { return std::optional(given); };
  return [given, file,
          by_launcher = !env.launcher_rank_variable.empty()](std::string& reason) -> std::optional<ServerPlace> {
    const auto shown = file->read();
    if (!shown) {
      reason = concat(file->text(), by_launcher ? " was not written. If ranks cannot see each other's processes "
                                                  "(containers), set MASTER_ADDR and MASTER_PORT for all of them"
                                                : " was not written. If rank 0 runs and does not share that folder, "
                                                  "or has another MASTER_ADDR or MASTER_PORT: set DRIVETRAIN_RUN_TOKEN "
                                                  "to the same secret for all ranks (openssl rand -hex 32)");
      return std::nullopt;
    }
    ServerPlace place = given;
    place.stale = true;
    if (by_launcher) place.host = "127.0.0.1", place.port = shown->port;
    if (place.secret.empty()) place.secret = shown->secret;
    return place;
  };
}

}  // namespace

std::shared_ptr<Store> make_local_store() { return std::make_shared<TableStore>(); }

std::shared_ptr<Store> open_store(const RankEnvironment& env, const std::function<void(const std::string&)>& warn) {
  if (env.world_size == 1) return make_local_store();
  if (env.rank == 0) return serve_others(env, warn);
  return std::make_shared<StoreClient>(env.rank, address_text(env), finder(env));
}

void enter_store(Store& store, double timeout_s) {
  auto* const client = dynamic_cast<StoreClient*>(&store);
  if (client == nullptr) return;
  client->enter(timeout_s);
  const auto [here, there] = client->ends();
  if (!here.empty()) store.set(concat(kAddress, client->rank()), here);
  // As other hosts see rank 0; on its own host that may be the loopback.
  const bool loopback = there.starts_with("127.") || there == "::1";
  if (!there.empty() && !loopback) store.set(concat(kAddress, 0), there);
}

std::shared_ptr<Store> make_store(const RankEnvironment& env, double timeout_s,
                                  const std::function<void(const std::string&)>& warn) {
  auto store = open_store(env, warn);
  enter_store(*store, timeout_s);
  return store;
}

void stop_run(Store& store, const std::string& reason) noexcept {
  try {
    if (auto* client = dynamic_cast<StoreClient*>(&store))
      client->set_within(kTellOthersS, kStopped, reason);
    else
      store.set(kStopped, reason);
  } catch (const std::exception&) {
    // Who cannot be reached learns it from the lost connection.
  }
}

void set_activity(Store& store, const RankEnvironment& env, const std::string& what) {
  if (env.world_size > 1) store.set(concat(kAt, "/", env.rank), what);
}

}  // namespace drivetrain
