#include "observe/bus.h"

#include <oneapi/tbb/concurrent_queue.h>

#include <atomic>
#include <exception>
#include <future>
#include <thread>

#include <drivetrain/error.h>

#include "plugin_calls/plugin_call.h"

namespace drivetrain {

namespace {
constexpr std::ptrdiff_t kBusCapacity = 1024;  // events, each below a kilobyte
}

struct EventBus::Impl {
  // An event, or a mark: `done` is set when all before it is handled; neither means the end.
  struct Item {
    std::shared_ptr<const Event> event;
    std::shared_ptr<std::promise<void>> done;
  };

  struct Listener {
    NamedMonitor monitor;
    bool failed = false;
  };

  Impl(std::vector<NamedMonitor> monitors, Log& l) : log(l) {
    for (NamedMonitor& monitor : monitors) listeners.push_back({std::move(monitor)});
    queue.set_capacity(kBusCapacity);
    thread = std::thread([this, rank = work_rank()] {
      work_rank() = rank;
      run();
    });
  }

  void run() {
    for (Item item; queue.pop(item), item.event || item.done;) {
      if (item.event) deliver(*item.event);
      if (item.done) item.done->set_value();
    }
  }

  void deliver(const Event& event) {
    for (Listener& listener : listeners) {
      if (listener.failed) continue;
      try {
        const std::string where = concat(event.type, " ", event.step);
        plugin_call({listener.monitor.id, "on_event", where, "at"}, [&] { listener.monitor.monitor->on_event(event); });
      } catch (const Error& e) {
        log.error(concat(listener.monitor.id, " failed and gets no more events: ", e.what()));
        remember(std::current_exception());
        listener.failed = true;
      }
    }
  }

  void remember(std::exception_ptr exception) {
    if (failed.load()) return;
    failure = std::move(exception);
    failed.store(true);
  }

  std::vector<Listener> listeners;  // touched by the thread only
  Log& log;
  tbb::concurrent_bounded_queue<Item> queue;
  std::exception_ptr failure;  // written once, before `failed`
  std::atomic<bool> failed = false;
  std::thread thread;  // last: everything above is ready when it starts
};

EventBus::EventBus(std::vector<NamedMonitor> monitors, Log& log)
    : impl_(std::make_unique<Impl>(std::move(monitors), log)) {}

EventBus::~EventBus() {
  impl_->queue.push({});
  impl_->thread.join();
}

void EventBus::publish(Event event) { impl_->queue.push({std::make_shared<const Event>(std::move(event)), nullptr}); }

void EventBus::flush() {
  const auto done = std::make_shared<std::promise<void>>();
  impl_->queue.push({nullptr, done});
  done->get_future().wait();
}

void EventBus::rethrow_if_failed() {
  if (impl_->failed.load()) std::rethrow_exception(impl_->failure);
}

}  // namespace drivetrain
