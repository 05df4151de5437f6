// The store of one process: a map, for one rank or for ranks that are threads.
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>

#include <drivetrain/error.h>

#include "compose/meeting_place.h"
#include "compose/rendezvous.h"
#include "compose/store_tcp.h"

namespace drivetrain {
namespace {

class LocalStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    {
      const std::lock_guard lock(mutex_);
      values_[key] = value;
    }
    changed_.notify_all();
  }

  std::string get(const std::string& key, double timeout_s) override {
    std::unique_lock lock(mutex_);
    const auto there = [&] { return values_.count(key) != 0; };
    if (!changed_.wait_for(lock, std::chrono::duration<double>(timeout_s), there))
      throw fail(ErrorCode::communication, "no rank set \"", key, "\" in the store within ", timeout_s, " s");
    return values_[key];
  }

  bool has(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    return values_.count(key) != 0;
  }

  // Counters are keys like others, as in TCPStore: has and get see them.
  int64_t add(const std::string& key, int64_t delta) override {
    int64_t value = 0;
    {
      const std::lock_guard lock(mutex_);
      const auto found = values_.find(key);
      value = (found == values_.end() ? 0 : std::stoll(found->second)) + delta;
      values_[key] = std::to_string(value);
    }
    changed_.notify_all();
    return value;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace

std::shared_ptr<Store> make_local_store() { return std::make_shared<LocalStore>(); }

std::shared_ptr<Store> make_store(const RankEnvironment& env, double timeout_s) {
  if (env.world_size == 1) return make_local_store();
  if (!env.meeting) return make_tcp_store(env, timeout_s);
  RankEnvironment found = env;
  const MeetingPlace::Found place = env.meeting->open(env.rank, timeout_s);
  found.master_port = place.port, found.listen_fd = place.listen_fd;
  return make_tcp_store(found, timeout_s);
}

}  // namespace drivetrain
