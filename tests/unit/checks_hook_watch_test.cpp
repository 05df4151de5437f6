// A call that does not come back is named, from another thread; calls that come back are not.
#include "train/hook_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <future>
#include <thread>

#include "plugin_calls/call_seats.h"
#include "plugin_calls/plugin_call.h"
#include "process/own_threads.h"
#include "support/waiting.h"
#include "train/moved_bytes.h"

extern "C" bool drivetrain_any_call(char* text, size_t size);

namespace drivetrain {
namespace {

// What the watch reports, once it does.
struct Report {
  std::promise<std::string> said;
  std::function<void(const std::string&)> taker() {
    return [this](const std::string& call) { said.set_value(call); };
  }
};

TEST(HookWatch, names_the_call_that_does_not_return) {
  Report report;
  std::future<std::string> said = report.said.get_future();
  std::atomic<bool> end = false;
  std::thread plugin([&] {
    work_rank() = {.rank = 12, .world_size = 16};
    const std::string id = "optimizer/mine";
    plugin_call({id, "update", "block.3"}, [&] {
      while (!end) std::this_thread::yield();
    });
  });
  const HookWatch watch(0.1, report.taker());
  EXPECT_EQ(said.get(), "optimizer/mine, hook update, unit block.3, rank 12");
  char text[512];
  ASSERT_TRUE(drivetrain_any_call(text, sizeof text));
  EXPECT_STREQ(text, "optimizer/mine, hook update, unit block.3, rank 12") << "a handler of a signal says the same";
  end = true;
  plugin.join();
  EXPECT_FALSE(drivetrain_any_call(text, sizeof text));
}

TEST(HookWatch, calls_that_return_and_those_that_move_bytes_are_left_alone) {
  Report report;
  std::future<std::string> said = report.said.get_future();
  const HookWatch watch(test::scaled(1), report.taker());
  const std::string id = "strategy/mine", store = "checkpoint_store/mine";
  for (int i = 0; i < 40; ++i) plugin_call({id, "before_forward"}, [&] { test::let_pass(0.05); });  // Waits: calls last
  const std::string bytes(100000, 'x');
  std::ofstream nowhere("/dev/null");
  plugin_call({store, "write"}, [&] {
    for (int i = 0; i < 20; ++i) nowhere << bytes << std::flush, test::let_pass(0.1);  // Waits: twice what is allowed
  });
  // Waits: no time at all
  EXPECT_EQ(said.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
}

// Whatever the kind: a policy moves no bytes, and a store or a dataset that moves none hangs.
TEST(HookWatch, a_save_an_opening_and_a_policy_that_move_nothing_are_named) {
  for (const auto& [id, hook] : {std::pair<std::string, const char*>{"checkpoint_store/mine", "write"},
                                 {"checkpoint_policy/mine", "due"},
                                 {"dataset/mine", "open"}}) {
    Report report;
    std::future<std::string> said = report.said.get_future();
    std::atomic<bool> end = false;
    std::thread plugin([&, of = id, call = hook] {
      plugin_call({of, call}, [&] {
        while (!end) test::let_pass(0.01);  // Waits: that is the misdeed
      });
    });
    const HookWatch watch(0.1, report.taker());
    EXPECT_EQ(said.get(), id + ", hook " + hook);
    end = true;
    plugin.join();
  }
}

// With the default of 1800 s it looks hundreds of times, and what that reads would pass for a plugin's work.
TEST(HookWatch, what_the_runtime_reads_beside_a_call_is_no_work_of_it) {
  std::promise<int> begun;
  std::promise<void> end;
  std::thread plugin([&] {
    plugin_call({"checkpoint_store/mine", "write"}, [&] {
      begun.set_value(gettid());
      end.get_future().wait();
    });
  });
  const int thread = begun.get_future().get();
  const auto bytes = [&] {
    const MovedBytes moved = bytes_moved_by(thread);
    EXPECT_TRUE(moved.known);
    return moved.bytes;
  };
  std::thread([&] {
    const OwnThread own;
    const uint64_t before = bytes();
    for (int i = 0; i < 500; ++i) bytes();
    EXPECT_EQ(bytes(), before);
  }).join();
  // A thread that a plugin has begun works for it.
  std::promise<void> wrote, over;
  const uint64_t before = bytes();
  std::thread helper([&] {
    std::ofstream("/dev/null") << std::string(100000, 'x') << std::flush;
    wrote.set_value();
    over.get_future().wait();
  });
  wrote.get_future().wait();
  EXPECT_GE(bytes(), before + 100000);
  over.set_value(), end.set_value();
  helper.join(), plugin.join();
}

TEST(HookWatch, a_call_inside_of_a_call_is_the_one_that_is_named) {
  const std::string outer = "model/mine", inner = "attention/mine";
  const CurrentCall first({outer, "forward", "block.0"});
  {
    const CurrentCall second({inner, "forward"});
    EXPECT_EQ(own_call_seat()->innermost.load(), &second);
  }
  EXPECT_EQ(own_call_seat()->innermost.load(), &first);
}

}  // namespace
}  // namespace drivetrain
