#include "bench/step_trace.h"

#include <algorithm>
#include <chrono>

#include <drivetrain/error.h>

#include "watch/step_times.h"
#include "watch/step_words.h"

namespace drivetrain {
namespace {

constexpr const char* kStepTrack = "step";
constexpr size_t kMostSlices = 200'000;  // of a rank; what follows is left out

double microseconds(double seconds) { return std::max(0.0, seconds * 1e6); }

Value event(const char* form, const char* name, int64_t rank, int64_t thread) {
  Value one = Value::object();
  one.set("ph", form), one.set("name", name), one.set("pid", rank), one.set("tid", thread);
  return one;
}

// A name for a process or a thread, or its place among the others.
Value label(const char* what, int64_t rank, int64_t thread, const char* key, const Value& value) {
  Value one = event("M", what, rank, thread), args = Value::object();
  args.set(key, value), one.set("args", std::move(args));
  return one;
}

double number(const Value& slice, const char* key) { return slice.find(key)->as_double(); }

// Lanes of one track: a slice takes the first one in which the slice before has ended.
class Lanes {
 public:
  size_t take(double begin, double end) {
    for (size_t lane = 0; lane < ends_.size(); ++lane)
      if (ends_[lane] <= begin) return ends_[lane] = end, lane;
    ends_.push_back(end);
    return ends_.size() - 1;
  }

 private:
  std::vector<double> ends_;
};

class RankEvents {
 public:
  RankEvents(int64_t rank, const Value& value, double origin_s, Value::Array& events)
      : rank_(rank), shift_us_(1e6 * (number(value, "began_s") - origin_s)), events_(events) {
    events_.push_back(label("process_name", rank, 0, "name", concat("rank ", rank)));
    events_.push_back(label("process_sort_index", rank, 0, "sort_index", rank));
    thread_of(kStepTrack, 0);
    std::vector<const Value*> slices;
    for (const Value& slice : value.find("slices")->items()) slices.push_back(&slice);
    std::stable_sort(slices.begin(), slices.end(), [](const Value* a, const Value* b) {
      return std::pair(number(*a, "ts"), -number(*a, "dur")) < std::pair(number(*b, "ts"), -number(*b, "dur"));
    });
    for (const Value* slice : slices) add(*slice);
  }

 private:
  void add(const Value& slice) {
    const std::string& track = slice.find("track")->as_string();
    const double begin = number(slice, "ts"), duration = number(slice, "dur");
    const size_t lane = track == kStepTrack ? 0 : lanes_[track].take(begin, begin + duration);
    Value one = event("X", slice.find("name")->as_string().c_str(), rank_, thread_of(track, lane));
    one.set("cat", track == kStepTrack ? "compute" : "communication");
    one.set("ts", begin + shift_us_), one.set("dur", duration), one.set("args", *slice.find("args"));
    events_.push_back(std::move(one));
  }

  int64_t thread_of(const std::string& track, size_t lane) {
    const auto [place, is_new] = threads_.try_emplace({track, lane}, static_cast<int64_t>(threads_.size()));
    if (!is_new) return place->second;
    const std::string name = track == kStepTrack ? track : concat("communication ", track);
    events_.push_back(label("thread_name", rank_, place->second, "name", name));
    events_.push_back(label("thread_sort_index", rank_, place->second, "sort_index", place->second));
    return place->second;
  }

  const int64_t rank_;
  const double shift_us_;
  Value::Array& events_;
  std::map<std::string, Lanes> lanes_;
  std::map<std::pair<std::string, size_t>, int64_t> threads_;
};

}  // namespace

void StepTrace::add(Slice slice) {
  if (slices_.size() < kMostSlices) slices_.push_back(std::move(slice));
}

void StepTrace::part_over(const FlightPlace& place, double begin_s, double end_s) noexcept {
  add({kStepTrack, part_name(place.doing), begin_s, end_s, place.micro, 0, 0, 0});
}

// A step's own slice holds those of its parts.
void StepTrace::step_over(int64_t step, double begin_s, double end_s) noexcept {
  add({kStepTrack, concat("step ", step), begin_s, end_s, -1, 0, 0, 0});
  ended_s_ = end_s;
}

// A slice of the step as well: the thread was in the call, or waited for it.
void StepTrace::held_up(const Call& call, double begin_s, double end_s, bool) noexcept {
  add({kStepTrack, concat("in ", name_of(call.what.op)), begin_s, end_s, -1, call.what.bytes, 0, 0});
}

void StepTrace::call_over(const Call& call, double end_s) noexcept {
  const FlightCall& what = call.what;
  add({call.group, name_of(what.op), call.begun_s, end_s, -1, what.bytes, what.number, call.held_up_s});
}

Value StepTrace::to_value() const {
  Value slices = Value::array(), value = Value::object();
  for (const Slice& slice : slices_) {
    if (slice.end_s > ended_s_) continue;  // of a step that has not ended
    Value one = Value::object(), args = Value::object();
    one.set("track", slice.track), one.set("name", slice.name);
    one.set("ts", microseconds(slice.begin_s)), one.set("dur", microseconds(slice.end_s - slice.begin_s));
    if (slice.micro >= 0) args.set("micro_batch", slice.micro);
    if (slice.bytes > 0) args.set("bytes", slice.bytes);
    if (slice.number > 0) args.set("number", slice.number), args.set("step_held_up_us", microseconds(slice.waited_s));
    one.set("args", std::move(args));
    slices.items().push_back(std::move(one));
  }
  const double now_s = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  value.set("began_s", now_s - record_.now()), value.set("slices", std::move(slices));
  return value;
}

Value trace_of(const std::vector<Value>& ranks) {
  Value trace = Value::object(), events = Value::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    RankEvents(static_cast<int64_t>(rank), ranks[rank], number(ranks.front(), "began_s"), events.items());
  trace.set("displayTimeUnit", "ms"), trace.set("traceEvents", std::move(events));
  return trace;
}

}  // namespace drivetrain
