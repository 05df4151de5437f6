// What the ranks of a run have told each other: keys and values within bounds, and the word that ends the run.
//
// Ownership: shared by rank 0's store and its server, or by ranks that are threads. Thread: any. Errors:
// Error(communication) for what is over a bound, for a counter that is none, and, once the run was stopped, for every
// question about a key that is not there: who would set it will not.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "internal.h"

namespace drivetrain {

// Set on any store: every wait for a key that is not there ends with this value as the reason, on all ranks. The first
// one holds.
inline constexpr const char* kStopped = "store/stopped";
// "store/left/2": rank 2 closed its store in order; "store/left" counts them.
inline constexpr const char* kLeft = "store/left";
// "store/at/2": what rank 2 is doing, as in "building the model".
inline constexpr const char* kAt = "store/at";

struct StoreBounds {
  size_t key = 4096, value = size_t{64} << 20, all = size_t{512} << 20;  // bytes
};

class DRIVETRAIN_INTERNAL StoreTable {
 public:
  explicit StoreTable(const StoreBounds& bounds = {}) : bounds_(bounds) {}

  // Throws where one of the two is too long.
  static void check(const std::string& key, const std::string& value, const StoreBounds& bounds = {});
  void set(const std::string& key, const std::string& value);
  int64_t add(const std::string& key, int64_t delta);
  std::optional<std::string> find(const std::string& key) const;
  // Returns early where the run is stopped; nothing after timeout_s.
  std::optional<std::string> wait(const std::string& key, double timeout_s) const;
  std::string peek(const std::string& key) const;         // empty where it is not there; never throws
  std::string stopped() const { return peek(kStopped); }  // the reason; empty: it is not
  size_t bytes() const;

  // Called after every change, with the key, by the thread that made it. Set before others know the table; null:
  // nobody.
  void on_change(std::function<void(const std::string& key)> listener);

 private:
  void keep(const std::string& key, const std::string& value);  // with the mutex held
  void tell(const std::string& key);

  const StoreBounds bounds_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  size_t bytes_ = 0;
  std::mutex listener_mutex_;
  std::function<void(const std::string&)> listener_;
};

}  // namespace drivetrain
