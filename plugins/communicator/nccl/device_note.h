// What the device notes of calls that were recorded with a step, see recorded_calls.h.
#pragma once

#include <cstdint>

namespace drivetrain::nccl {

// Written by the device.
struct DeviceNote {
  uint64_t begun = 0, ended = 0;  // calls of all replays so far
  uint64_t collectives = 0;       // of those begun
  uint64_t call = 0;              // the one begun last, by its place in the recording
};
constexpr uint64_t kNoCall = ~uint64_t{0};

// Enqueued on `stream`; returns a cudaError_t, 0 if launched. May be captured into a graph.
int note_begin(DeviceNote* note, uint64_t call, bool is_collective, void* stream);
int note_end(DeviceNote* note, void* stream);

}  // namespace drivetrain::nccl
