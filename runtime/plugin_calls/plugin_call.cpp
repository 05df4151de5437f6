#include "plugin_calls/plugin_call.h"

#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <cxxabi.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include <drivetrain/toolkit/text.h>

#include "log/log_console.h"
#include "plugin_calls/call_seats.h"
#include "plugin_calls/situations.h"

namespace drivetrain {
namespace {

thread_local const CurrentCall* current_call = nullptr;
thread_local const std::function<void(const CurrentCall&)>* behind_calls = nullptr;
// Text, since the plugin may be gone when somebody asks.
thread_local char last_unit[200] = {};

// Of the exception that is being handled.
std::string type_of_exception() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  return type ? c10::demangle(type->name()) : "something unknown";
}

// "in optimizer/mine, hook update, rank 1": the rank once, by the outermost call.
std::string place_of(const CurrentCall& current) {
  const WorkRank& rank = work_rank();
  const bool tell_rank = !current.outer() && rank.world_size > 1;
  return current.call().text() + (tell_rank ? concat(", rank ", rank.rank) : "");
}

// A plugin's own messages begin with its name, which the place says already.
std::string without_name(const std::string& id, const std::string& message) {
  return message.rfind(id + ": ", 0) == 0 ? message.substr(id.size() + 2) : message;
}

// Where the trace went, for the end of the message; empty: nowhere.
std::string keep_trace(const std::string& place, const std::string& trace) {
  const std::shared_ptr<Log> log = work_rank().log.lock();
  if (!log) return {};
  const std::string text = concat("trace of the exception in ", place, ":\n", trace);
  const std::string file = note_in_file(*log, text);
  if (file.empty()) log->debug(text);
  return file.empty() ? "" : "\n   the trace is in " + file;
}

// As much of a text as somebody reads. An exception may bring a whole tensor, or a file.
std::string readable(const std::string& text) {
  constexpr size_t kMost = 4000;
  if (text.size() <= kMost) return text;
  size_t end = kMost;
  while (end > 0 && (text[end] & 0xc0) == 0x80) --end;  // not within a character of UTF-8
  return concat(text.substr(0, end), "... (", text.size() - end, " bytes more)");
}

Error fault(const std::string& place, const std::string& message) {
  return fail(ErrorCode::plugin, "in ", place, ": ", readable(message));
}

}  // namespace

std::string PluginCall::text() const {
  std::string text = concat(id, ", ", kind, hook);
  if (!where.empty()) text += concat(", ", noun, " ", where);
  return text;
}

WorkRank& work_rank() {
  thread_local WorkRank rank;
  return rank;
}

CurrentCall::CurrentCall(const PluginCall& call)
    : call_(call), outer_(current_call), rank_(work_rank().world_size > 1 ? work_rank().rank : -1) {
  current_call = this;
  CallSeat* const seat = own_call_seat();
  if (!seat) return;
  if (!outer_) seat->calls.fetch_add(1, std::memory_order_relaxed);
  seat->innermost.store(this, std::memory_order_release);
}

CurrentCall::~CurrentCall() {
  current_call = outer_;
  if (behind_calls) (*behind_calls)(*this);
  if (!call_.where.empty() && std::string_view(call_.noun) == "unit") copy_text(last_unit, sizeof last_unit);
  CallSeat* const seat = own_call_seat();
  if (!seat) return;
  seat->innermost.store(outer_);
  while (seat->read.load()) sched_yield();  // for microseconds, in a run that stands still
}

BehindCalls::BehindCalls(std::function<void(const CurrentCall&)> look) : look_(std::move(look)) {
  behind_calls = &look_;
}
BehindCalls::~BehindCalls() { behind_calls = nullptr; }

std::string last_unit_call() {
  for (const CurrentCall* call = current_call; call; call = call->outer())
    if (!call->call().where.empty() && std::string_view(call->call().noun) == "unit") return call->call().text();
  const std::string text = last_unit;
  return text.substr(0, text.rfind(", rank "));
}

std::string current_call_text() { return current_call ? current_call->text() : "the runtime"; }
std::string CurrentCall::text() const { return call_.text() + (rank_ < 0 ? "" : concat(", rank ", rank_)); }

void CurrentCall::copy_text(char* text, size_t size) const {
  size_t used = 0;
  const auto add = [&](const char* part, size_t length) {
    length = std::min(length, size - 1 - used);
    std::memcpy(text + used, part, length);
    used += length;
  };
  const auto add_text = [&](const char* part) { add(part, std::strlen(part)); };
  add(call_.id.data(), call_.id.size());
  add_text(", "), add_text(call_.kind), add_text(call_.hook);
  if (!call_.where.empty())
    add_text(", "), add_text(call_.noun), add_text(" "), add(call_.where.data(), call_.where.size());
  if (rank_ >= 0) {
    char digits[20];
    add_text(", rank "), add(digits, static_cast<size_t>(std::to_chars(digits, std::end(digits), rank_).ptr - digits));
  }
  text[used] = 0;
}

Error error_of_current_call() {
  const std::string place = place_of(*current_call), &id = current_call->call().id;
  try {
    throw;
  } catch (const std::exception& e) {
    if (const auto situation = situation_of(e)) return fail(situation->code, "in ", place, ": ", situation->text());
    if (const auto* error = dynamic_cast<const Error*>(&e))
      return Error(error->code(), readable(without_name(id, e.what()))).within(place);
    if (const auto* torch = dynamic_cast<const c10::Error*>(&e)) {
      const std::string kept = keep_trace(place, torch->what());
      return fault(place, first_line(torch->what_without_backtrace()) + kept);
    }
    return fault(place,
                 *e.what() ? std::string(e.what()) : concat("an exception without a text, ", type_of_exception()));
  } catch (...) {
    return fault(place, concat("threw something that is no exception (", type_of_exception(), ")"));
  }
}

}  // namespace drivetrain

// For the program's handlers: copies a call to `text`, as CurrentCall::text() has it. False if there is none. Only
// calls that are safe in a handler. The first is this thread's innermost call.
extern "C" DRIVETRAIN_API bool drivetrain_current_call(char* text, size_t size) {
  using namespace drivetrain;
  if (!current_call || size == 0) return false;
  current_call->copy_text(text, size);
  return true;
}

// This thread's, or else any other's.
extern "C" DRIVETRAIN_API bool drivetrain_any_call(char* text, size_t size) {
  using namespace drivetrain;
  if (drivetrain_current_call(text, size)) return true;
  for (size_t i = 0; i < kCallSeats && size > 0; ++i) {
    const CurrentCall* const call = call_seats()[i].innermost;
    if (!call) continue;
    call->copy_text(text, size);
    return true;
  }
  return false;
}
