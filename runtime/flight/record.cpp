#include "flight/record.h"

#include <algorithm>
#include <utility>

#include "flight/listener.h"
#include "flight/memory.h"

namespace drivetrain {
namespace {

using Memory = FlightRecord::Memory;

thread_local FlightListener* listener = nullptr;

WorkPart part_of(FlightDoing doing) {
  switch (doing) {
    case FlightDoing::load:
      return WorkPart::data;
    case FlightDoing::forward:
    case FlightDoing::replay:
      return WorkPart::forward;
    case FlightDoing::backward:
    case FlightDoing::backward_weight:
      return WorkPart::backward;
    case FlightDoing::reduce:
      return WorkPart::reduce;
    case FlightDoing::send:
    case FlightDoing::receive:
      return WorkPart::stages;
    case FlightDoing::update:
      return WorkPart::optimizer;
    case FlightDoing::save:
      return WorkPart::checkpoint;
    default:
      return WorkPart::between;
  }
}

}  // namespace

FlightListener* listen_to_this_thread(FlightListener* next) noexcept { return std::exchange(listener, next); }

size_t FlightRecord::group(const std::string& label) {
  const std::lock_guard lock(groups_);
  Memory& memory = *memory_;
  const size_t index = std::min<size_t>(memory.groups, kGroups - 1);
  if (memory.groups < kGroups)
    copy_text(memory.labels[index], sizeof memory.labels[index], index + 1 < kGroups ? label : "others");
  memory.groups.store(static_cast<uint32_t>(std::min(index + 1, kGroups)), std::memory_order_release);
  return index;
}

uint64_t FlightRecord::begin(size_t group, const FlightCall& call) noexcept {
  const int64_t now = flight_clock_ns() - memory_.load()->start_ns;
  if (is_main_thread()) work_.call_begins(now);
  return write_call(group, call, FlightState::called, now);
}

uint64_t FlightRecord::write_call(size_t group, const FlightCall& call, FlightState state, int64_t now) noexcept {
  Memory& memory = *memory_;
  const uint64_t serial = memory.begun.fetch_add(1, std::memory_order_relaxed) + 1;
  Memory::Entry& entry = memory.places[serial % kEntries];
  entry.serial.store(0, std::memory_order_relaxed);     // whoever reads leaves it out
  std::atomic_thread_fence(std::memory_order_release);  // and sees that before anything of the new call
  const auto put = [](auto& to, auto value) { to.store(value, std::memory_order_relaxed); };
  put(entry.group, static_cast<uint16_t>(group)), put(entry.op, static_cast<uint8_t>(call.op));
  put(entry.dtype, call.dtype), put(entry.peer, static_cast<int32_t>(call.peer));
  put(entry.number, call.number), put(entry.bytes, call.bytes);
  put(entry.called_ns, now), put(entry.waited_ns, state == FlightState::waiting ? now : 0), put(entry.done_ns, 0);
  put(entry.state, static_cast<uint8_t>(state)), put(entry.on_device, state == FlightState::waiting);
  entry.serial.store(serial, std::memory_order_release);
  if (is_collective(call.op)) memory.reached[group].store(call.number, std::memory_order_relaxed);
  memory.changed_ns.store(now, std::memory_order_relaxed);
  if (listener) listener->begun(serial, memory.labels[group], call, in_seconds(now));
  return serial;
}

void FlightRecord::set_state(uint64_t serial, FlightState state) noexcept {
  Memory& memory = *memory_;
  const int64_t now = flight_clock_ns() - memory.start_ns;
  if (listener) listener->is(serial, state, in_seconds(now));
  if (is_main_thread()) state == FlightState::waiting ? work_.call_begins(now) : work_.call_ends(now);
  Memory::Entry& entry = memory.places[serial % kEntries];
  if (entry.serial.load(std::memory_order_acquire) != serial) return;  // its place has another call by now
  if (state == FlightState::pending) {
    entry.state.store(static_cast<uint8_t>(state), std::memory_order_relaxed);
    return;
  }
  (state == FlightState::waiting ? entry.waited_ns : entry.done_ns).store(now, std::memory_order_relaxed);
  entry.state.store(static_cast<uint8_t>(state), std::memory_order_release);
  memory.changed_ns.store(now, std::memory_order_relaxed);
  memory.changes.fetch_add(1, std::memory_order_relaxed);
}

void FlightRecord::enqueued(uint64_t serial) noexcept {
  if (!is_main_thread()) return done(serial);  // who else would say that the device is there
  Memory& memory = *memory_;
  const int64_t now = flight_clock_ns() - memory.start_ns;
  work_.call_ends(now);
  if (listener) listener->is(serial, FlightState::done, in_seconds(now));  // for the host it is over
  Memory::Entry& entry = memory.places[serial % kEntries];
  if (entry.serial.load(std::memory_order_acquire) == serial) entry.on_device.store(1, std::memory_order_relaxed);
}

void FlightRecord::device_reached() noexcept {
  Memory& memory = *memory_;
  const int64_t now = flight_clock_ns() - memory.start_ns;
  work_.skip(now);
  for (Memory::Entry& entry : memory.places) {
    if (!entry.on_device.load(std::memory_order_relaxed)) continue;
    entry.on_device.store(0, std::memory_order_relaxed);
    entry.done_ns.store(now, std::memory_order_relaxed);
    entry.state.store(static_cast<uint8_t>(FlightState::done), std::memory_order_release);
  }
  memory.changes.fetch_add(1, std::memory_order_relaxed);
}

void FlightRecord::recording_begins() {
  recording_.clear();
  ++recordings_;
  recorder_ = std::this_thread::get_id();
}

std::vector<RecordedCall> FlightRecord::recording_ends() {
  recorder_ = std::thread::id();
  for (const RecordedCall& call : recording_) call.wait->recording_over = true;
  return std::exchange(recording_, {});
}

void FlightRecord::replayed(const std::vector<RecordedCall>& calls) noexcept {
  const int64_t now = flight_clock_ns() - memory_.load()->start_ns;
  for (const RecordedCall& one : calls) {
    FlightCall call = one.call;
    call.number = one.numbers->next(call.op, call.peer);
    write_call(one.group, call, FlightState::waiting, now);
  }
}

void FlightRecord::at_step(int64_t step) noexcept {
  main_ = std::this_thread::get_id();
  memory_.load()->step.store(step, std::memory_order_relaxed);
  at(FlightDoing::outside);
}

void FlightRecord::at(FlightDoing doing, int64_t micro) noexcept {
  Memory& memory = *memory_;
  const int64_t now = flight_clock_ns() - memory.start_ns;
  if (is_main_thread() && !aside_) work_.enter(part_of(doing), now);
  memory.micro.store(micro, std::memory_order_relaxed);
  memory.doing.store(static_cast<uint8_t>(doing), std::memory_order_relaxed);
  memory.changed_ns.store(now, std::memory_order_relaxed);
  memory.changes.fetch_add(1, std::memory_order_relaxed);
  if (listener) listener->at({memory.step.load(std::memory_order_relaxed), micro, doing}, in_seconds(now));
}

void FlightRecord::aside(FlightDoing doing) noexcept {
  at(doing);
  if (!aside_) work_.call_begins(flight_clock_ns() - memory_.load()->start_ns);
  aside_ = true;
}

void FlightRecord::aside_over() noexcept {
  if (aside_) work_.call_ends(flight_clock_ns() - memory_.load()->start_ns);
  aside_ = false;
  at(FlightDoing::outside);
}

WorkSeconds FlightRecord::take_own_work() noexcept {
  Memory& memory = *memory_;
  const WorkSeconds taken = work_.take(flight_clock_ns() - memory.start_ns);
  last_work_[work_steps_++ % kWorkSteps] = taken;
  WorkSeconds sum = {};
  for (const WorkSeconds& step : last_work_)
    for (size_t part = 0; part < kWorkParts; ++part) sum[part] += step[part];
  for (size_t part = 0; part < kWorkParts; ++part)
    memory.work_ns[part].store(static_cast<int64_t>(sum[part] * 1e9), std::memory_order_relaxed);
  memory.work_steps.store(static_cast<int64_t>(std::min(work_steps_, kWorkSteps)), std::memory_order_relaxed);
  return taken;
}

int64_t FlightRecord::steps_made() const noexcept { return memory_.load()->work_steps.load(std::memory_order_relaxed); }

uint64_t FlightRecord::progress() const noexcept {
  const Memory& memory = *memory_;
  return memory.begun.load(std::memory_order_relaxed) + memory.changes.load(std::memory_order_relaxed);
}

double FlightRecord::now() const noexcept { return in_seconds(flight_clock_ns() - memory_.load()->start_ns); }
FlightPlace FlightRecord::place() const { return place_in(*memory_); }
std::vector<FlightEntry> FlightRecord::entries() const { return entries_in(*memory_); }

std::map<std::string, int64_t> FlightRecord::reached() const { return reached_in(*memory_); }

}  // namespace drivetrain
