// The device's notes of recorded calls. One thread; the stream keeps the order.
#include "device_note.h"

namespace drivetrain::nccl {
namespace {

__global__ void begin_call(volatile DeviceNote* note, uint64_t call, bool is_collective) {
  note->call = call;
  if (is_collective) note->collectives = note->collectives + 1;
  __threadfence_system();  // the host sees the call before its number
  note->begun = note->begun + 1;
}

__global__ void end_call(volatile DeviceNote* note) { note->ended = note->begun; }

}  // namespace

int note_begin(DeviceNote* note, uint64_t call, bool is_collective, void* stream) {
  begin_call<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(note, call, is_collective);
  return cudaGetLastError();
}

int note_end(DeviceNote* note, void* stream) {
  end_call<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(note);
  return cudaGetLastError();
}

}  // namespace drivetrain::nccl
