// Random numbers on CUDA: those that the CPU draws for the same places. Element e of a sample is word e % 4 of Philox
// block e / 4 (philox.h), whoever asks for it; a tensor at hand may hold a run of each sample's elements only.
#pragma once

#include "kernels/common/kernel.h"

namespace drivetrain::kernels {

// Elements [whole, whole + count) of each sample; here they are [local, local + count) of each row.
struct RandomPlaces {
  int64_t samples = 0, row = 0;  // row: elements of a sample in the tensor at hand
  int64_t whole = 0, local = 0, count = 0;
  uint64_t first_sample = 0;
  uint32_t key0 = 0, key1 = 0;
};

// out[place] := its number, uniform in [0, 1).
struct Uniform {
  float* out = nullptr;  // [samples, row]
  RandomPlaces places;
};
DRIVETRAIN_KERNEL int uniform_cuda(const Uniform&, void* stream);

// out[place] := x[place] * scale where its number is at least `limit`, else 0. x and out may be the same.
struct Dropout {
  const void* x = nullptr;  // [samples, row]
  void* out = nullptr;      // [samples, row]
  float limit = 0, scale = 1;
  RandomPlaces places;
  Dtype dtype = Dtype::f32;
};
DRIVETRAIN_KERNEL int dropout_cuda(const Dropout&, void* stream);

}  // namespace drivetrain::kernels
