#include <drivetrain/testkit/kit/rank_threads.h>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include <drivetrain/error.h>

namespace drivetrain::test {
namespace {

class MemoryStore : public Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, double timeout_s) override {
    std::unique_lock lock(mutex_);
    // Waits: that is what a store does
    if (!changed_.wait_for(lock, std::chrono::duration<double>(timeout_s), [&] { return values_.contains(key); }))
      throw fail(ErrorCode::communication, "nobody set \"", key, "\" in the store within ", timeout_s, " s");
    return values_[key];
  }
  bool has(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    return values_.contains(key);
  }
  int64_t add(const std::string& key, int64_t delta) override {
    const std::lock_guard lock(mutex_);
    std::string& value = values_[key];
    value = std::to_string((value.empty() ? 0 : std::stoll(value)) + delta);
    changed_.notify_all();
    return std::stoll(value);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace

std::shared_ptr<Store> make_memory_store() { return std::make_shared<MemoryStore>(); }

std::vector<std::string> on_threads(int64_t ranks, const std::function<void(int64_t rank)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        at::set_num_threads(1);
        body(rank);
      } catch (const std::exception& e) {
        errors[static_cast<size_t>(rank)] = e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void expect_no_errors(const std::vector<std::string>& errors) {
  for (size_t rank = 0; rank < errors.size(); ++rank) EXPECT_EQ(errors[rank], "") << "on rank " << rank;
}

}  // namespace drivetrain::test
