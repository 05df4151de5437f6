// Messages under way, and operations that wait for them.
//
// A collective is a coroutine (Flow): it posts messages, `co_await`s them, adds, posts the next ones. It is resumed by
// `advance` on whatever thread makes progress. Requests hold no memory of their own: buffers outlive them. Thread: one
// at a time, under the carrier's mutex. Errors: as Carrier.
#pragma once

#include <coroutine>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include <drivetrain/toolkit/messages/carrier.h>

namespace drivetrain::toolkit::messages {

class Requests {
 public:
  Requests() = default;
  Requests(const Requests&) = delete;

  // `peer`: the index in the group of the other end.
  void add(int peer, TransferPtr transfer) { list_.push_back({std::move(transfer), peer}); }
  bool done();
  // Peers whose messages are still under way.
  std::vector<int64_t> pending();
  void clear() { list_.clear(), next_ = 0; }  // done ones

 private:
  struct Entry {
    TransferPtr transfer;
    int peer;
  };
  std::vector<Entry> list_;
  size_t next_ = 0;  // all before it are done
};

class Flow {
 public:
  struct promise_type;
  using Handle = std::coroutine_handle<promise_type>;

  Flow() = default;
  explicit Flow(Handle handle) : handle_(handle) {}
  Flow(Flow&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Flow& operator=(Flow&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Flow() {
    if (handle_) handle_.destroy();
  }

  // Goes on as far as messages have arrived; true once at the end. Throws what the coroutine threw.
  bool advance();
  // Counts up whenever something arrived.
  int64_t moved() const { return moved_; }
  bool exists() const { return static_cast<bool>(handle_); }
  // What it waits for; null before the start and at the end.
  Requests* waiting() const;

 private:
  Handle handle_;
  int64_t moved_ = 0;
};

struct Flow::promise_type {
  Requests* waiting = nullptr;
  std::exception_ptr error;

  struct Until {
    Requests& requests;
    promise_type& promise;
    bool await_ready() const { return requests.done(); }
    void await_suspend(Handle) const noexcept { promise.waiting = &requests; }
    void await_resume() const noexcept {}
  };
  Until await_transform(Requests& requests) { return {requests, *this}; }

  Flow get_return_object() { return Flow(Handle::from_promise(*this)); }
  std::suspend_always initial_suspend() const noexcept { return {}; }
  std::suspend_always final_suspend() const noexcept { return {}; }
  void return_void() const noexcept {}
  void unhandled_exception() { error = std::current_exception(); }
};

}  // namespace drivetrain::toolkit::messages
