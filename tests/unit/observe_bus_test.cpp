// Events reach every monitor in order, and a monitor that fails is noticed.
#include "observe/bus.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include <drivetrain/error.h>

#include "support/waiting.h"

namespace drivetrain {
namespace {

class ListLog : public Log {
 public:
  void write(LogLevel, const std::string& line) override {
    const std::lock_guard lock(mutex_);
    lines.push_back(line);
  }
  void progress(const std::string&) override {}
  std::vector<std::string> lines;

 private:
  std::mutex mutex_;
};

struct Recorder : Monitor {
  void on_event(const Event& event) override {
    if (event.step == pause_at) test::let_pass(0.05);  // Waits: the queue fills up meanwhile
    steps.push_back(event.step);
    thread = std::this_thread::get_id();
  }
  std::vector<int64_t> steps;
  std::thread::id thread;
  int64_t pause_at = -1;
};

struct Failing : Monitor {
  void on_event(const Event& event) override {
    ++calls;
    if (event.step == 2) throw fail(ErrorCode::io, "cannot write step 2: No space left on device");
  }
  int calls = 0;
};

Event step(int64_t n) { return {"step", n, Value::object()}; }

std::vector<int64_t> numbers(int64_t count) {
  std::vector<int64_t> list;
  for (int64_t i = 0; i < count; ++i) list.push_back(i);
  return list;
}

TEST(EventBus, delivers_in_order_on_one_other_thread) {
  ListLog log;
  const auto first = std::make_shared<Recorder>(), second = std::make_shared<Recorder>();
  EventBus bus({{"monitor/first", first}, {"monitor/second", second}}, log);
  for (int64_t i = 0; i < 100; ++i) bus.publish(step(i));
  bus.flush();
  EXPECT_EQ(first->steps, numbers(100));
  EXPECT_EQ(second->steps, numbers(100));
  EXPECT_EQ(first->thread, second->thread);
  EXPECT_NE(first->thread, std::this_thread::get_id());
  EXPECT_NO_THROW(bus.rethrow_if_failed());
}

TEST(EventBus, loses_nothing_when_the_queue_is_full) {
  ListLog log;
  const auto slow = std::make_shared<Recorder>();
  slow->pause_at = 0;
  EventBus bus({{"monitor/slow", slow}}, log);
  for (int64_t i = 0; i < 5000; ++i) bus.publish(step(i));
  bus.flush();
  EXPECT_EQ(slow->steps, numbers(5000));
}

TEST(EventBus, delivers_what_was_published_before_it_ends) {
  ListLog log;
  const auto recorder = std::make_shared<Recorder>();
  recorder->pause_at = 0;
  {
    EventBus bus({{"monitor/recorder", recorder}}, log);
    for (int64_t i = 0; i < 10; ++i) bus.publish(step(i));
  }
  EXPECT_EQ(recorder->steps, numbers(10));
}

TEST(EventBus, a_failing_monitor_is_reported_once_left_out_and_ends_the_run_with_its_own_error) {
  ListLog log;
  const auto failing = std::make_shared<Failing>();
  const auto recorder = std::make_shared<Recorder>();
  EventBus bus({{"monitor/failing", failing}, {"monitor/recorder", recorder}}, log);
  for (int64_t i = 0; i < 6; ++i) bus.publish(step(i));
  bus.flush();
  EXPECT_EQ(failing->calls, 3);
  EXPECT_EQ(recorder->steps, numbers(6));
  ASSERT_EQ(log.lines.size(), 1u);
  for (const char* part :
       {"monitor/failing failed and gets no more events", "hook on_event, at step 2: cannot write step 2"})
    EXPECT_NE(log.lines[0].find(part), std::string::npos) << log.lines[0];
  try {
    bus.rethrow_if_failed();
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
    EXPECT_NE(std::string(e.what()).find("monitor/failing"), std::string::npos) << e.what();
  }
}

TEST(EventBus, what_is_no_exception_is_an_error_of_the_monitor) {
  struct Odd : Monitor {
    void on_event(const Event&) override { throw 7; }
  };
  ListLog log;
  EventBus bus({{"monitor/odd", std::make_shared<Odd>()}}, log);
  bus.publish(step(1));
  bus.flush();
  try {
    bus.rethrow_if_failed();
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::plugin);
    for (const char* part : {"monitor/odd, hook on_event, at step 1", "no exception (int)"})
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(EventBus, a_run_without_monitors_is_fine) {
  ListLog log;
  EventBus bus({}, log);
  bus.publish(step(1));
  bus.flush();
}

}  // namespace
}  // namespace drivetrain
