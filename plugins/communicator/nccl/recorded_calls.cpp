#include "recorded_calls.h"

#include <atomic>
#include <utility>

#include "comm.h"

namespace drivetrain::nccl {
namespace {

// The device writes it at any time.
uint64_t now_in(uint64_t& place) { return std::atomic_ref(place).load(std::memory_order_acquire); }

void check_note(int status, const char* what) { check_cuda(static_cast<cudaError_t>(status), "a recorded step", what); }

}  // namespace

RecordedCalls::RecordedCalls(cudaStream_t stream) {
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, sizeof(DeviceNote), cudaHostAllocDefault), "make_group", "cudaHostAlloc");
  note_ = new (memory) DeviceNote;
  check_note(note_begin(note_, kNoCall, false, stream), "note_begin");
  check_note(note_end(note_, stream), "note_end");
}

RecordedCalls::~RecordedCalls() { cudaFreeHost(note_); }

void RecordedCalls::begin(const toolkit::Call& call, const toolkit::Counts& counts, cudaStream_t stream) {
  uint64_t place = 0;
  {
    const std::lock_guard lock(mutex_);
    place = calls_.size();
    calls_.push_back({call, counts});
  }
  check_note(note_begin(note_, place, call.number > 0, stream), "note_begin");
}

void RecordedCalls::end(cudaStream_t stream) { check_note(note_end(note_, stream), "note_end"); }

int64_t RecordedCalls::collectives() const { return static_cast<int64_t>(now_in(note_->collectives)); }

std::optional<RecordedCalls::Open> RecordedCalls::open() {
  const std::lock_guard lock(mutex_);
  const Clock::time_point last_look = std::exchange(looked_, Clock::now());
  const uint64_t begun = now_in(note_->begun), call = now_in(note_->call), ended = now_in(note_->ended);
  const int64_t collectives = this->collectives();
  if (std::exchange(seen_, begun) != begun) since_ = last_look;
  // The device may have gone on while the lines above read its notes.
  if (ended >= begun || call >= calls_.size() || now_in(note_->begun) != begun) return std::nullopt;
  const Recorded& open = calls_[call];
  return Open{open.call, open.counts, collectives, std::chrono::duration<double>(looked_ - since_).count()};
}

}  // namespace drivetrain::nccl
