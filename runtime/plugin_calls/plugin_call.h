// Every call from the runtime into a plugin. While it runs the thread knows who is at work, which is what a crash says;
// what the plugin throws comes back as an Error that names plugin, hook, unit and rank.
//
// An Error keeps its code: the plugin chose it. What a user's situation causes (situations.h: memory that could not be
// had, a full disk, a broken GPU) has the code of that. Anything else is the plugin's fault, ErrorCode::plugin; a trace
// that LibTorch appends goes to the run's log.txt instead of the terminal. Thread: any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <drivetrain/error.h>
#include <drivetrain/log.h>

#include "internal.h"

namespace drivetrain {

// What is called. All of it outlives the call.
struct PluginCall {
  const std::string& id;        // "optimizer/adamw"
  const char* hook;             // "update"
  std::string_view where = {};  // "block.3"
  const char* noun = "unit";    // what `where` is
  const char* kind = "hook ";   // before `hook`; empty: it is no hook
  bool keeps_errors = false;    // an Error passes as it is: whoever catches it says whose it is

  std::string text() const;  // "optimizer/adamw, hook update, unit block.3"
};

// The rank that a thread works for. Threads that a rank starts take it over.
struct WorkRank {
  int64_t rank = 0, world_size = 1;
  std::weak_ptr<Log> log = {};                   // whose file gets the traces
  int64_t device = -1;                           // its GPU among those that the process sees; -1: none
  std::function<std::string()> step_place = {};  // "step 7: forward, micro-batch 2", if it is known
};
DRIVETRAIN_INTERNAL WorkRank& work_rank();  // of this thread

// The last call of this thread to a unit, as it ended or as it is now, without its rank; empty: there was none.
DRIVETRAIN_INTERNAL std::string last_unit_call();

// The innermost call of this thread, as long as it lives.
class DRIVETRAIN_INTERNAL CurrentCall {
 public:
  explicit CurrentCall(const PluginCall& call);
  ~CurrentCall();
  CurrentCall(const CurrentCall&) = delete;
  CurrentCall& operator=(const CurrentCall&) = delete;

  const PluginCall& call() const { return call_; }
  const CurrentCall* outer() const { return outer_; }
  std::string text() const;  // "optimizer/adamw, hook update, rank 1": the rank where there are several
  // The same into `text`, in a handler of a signal too.
  void copy_text(char* text, size_t size) const;

 private:
  const PluginCall call_;
  const CurrentCall* outer_;
  const int64_t rank_;  // -1: it is alone
};

DRIVETRAIN_INTERNAL std::string current_call_text();  // of this thread's innermost one; "the runtime" outside of all

// While it lives, `look` is called behind every plugin call of this thread, the inner ones first. One at a time.
class DRIVETRAIN_INTERNAL BehindCalls {
 public:
  explicit BehindCalls(std::function<void(const CurrentCall&)> look);
  ~BehindCalls();
  BehindCalls(const BehindCalls&) = delete;
  BehindCalls& operator=(const BehindCalls&) = delete;

 private:
  const std::function<void(const CurrentCall&)> look_;
};

// The exception that is being handled as the Error of the current call.
DRIVETRAIN_INTERNAL Error error_of_current_call();

template <class Inside>
decltype(auto) plugin_call(const PluginCall& call, Inside&& inside) {
  const CurrentCall current(call);
  try {
    return inside();
  } catch (const Error&) {
    if (call.keeps_errors) throw;
    throw error_of_current_call();
  } catch (...) {
    throw error_of_current_call();
  }
}

}  // namespace drivetrain
