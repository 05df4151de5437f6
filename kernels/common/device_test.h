// For the tests of CUDA kernels: memory on the device, random data, and a run that is repeated and captured. Without
// LibTorch, so that compute-sanitizer is quick on them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/common/kernel.h"

namespace drivetrain::kernels::device_test {

inline void check(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) GTEST_SKIP() << "no CUDA device: " << cudaGetErrorString(error);
    if (count == 0) GTEST_SKIP() << "no CUDA device";
  }
};

inline constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::bf16, Dtype::f16};

// Largest relative error of one rounding to the type; float32: of a few operations.
inline double rounding(Dtype dtype) { return dtype == Dtype::f32 ? 2e-6 : dtype == Dtype::bf16 ? 0x1p-8 : 0x1p-11; }

inline std::vector<double> random_values(int64_t count, uint64_t seed, double scale = 1.0) {
  std::vector<double> values(static_cast<size_t>(count));
  uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (double& value : values) {
    double sum = 0;  // of four uniform numbers: bell-shaped enough
    for (int i = 0; i < 4; ++i) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      sum += static_cast<double>(state >> 40) / 0x1p24 - 0.5;
    }
    value = sum * scale;
  }
  return values;
}

// Numbers on the device with what they were at first. `T` is float, __nv_bfloat16, __half, double, int64_t or bool.
class Memory {
 public:
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() { cudaFree(base_); }

  void reset() { check(cudaMemcpy(data(), initial_.data(), initial_.size(), cudaMemcpyHostToDevice)); }
  std::vector<char> bytes() const {
    std::vector<char> now(initial_.size());
    check(cudaMemcpy(now.data(), base_ + skip_, now.size(), cudaMemcpyDeviceToHost));
    return now;
  }
  void* data() { return base_ + skip_; }
  template <class T>
  T* as() {
    return static_cast<T*>(data());
  }

 protected:
  // skip: bytes before the first number, to spoil its alignment.
  Memory(std::vector<char> initial, size_t skip) : initial_(std::move(initial)), skip_(skip) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, initial_.size() + skip + 1));
    base_ = static_cast<char*>(memory);
    reset();
  }

  std::vector<char> initial_;
  size_t skip_;
  char* base_ = nullptr;
};

template <class T>
std::vector<char> bytes_of(const std::vector<T>& values) {
  std::vector<char> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <class T>
std::vector<T> values_of(const std::vector<char>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

template <class T>
class Array : public Memory {
 public:
  explicit Array(const std::vector<T>& values) : Memory(bytes_of(values), 0) {}
  std::vector<T> first() const { return values_of<T>(initial_); }
  std::vector<T> now() const { return values_of<T>(bytes()); }
};

// Floating point numbers of a kernel's element type.
class Numbers : public Memory {
 public:
  Numbers(Dtype dtype, const std::vector<double>& values, int64_t skip = 0)
      : Memory(encoded(dtype, values), static_cast<size_t>(skip) * size(dtype)), dtype_(dtype) {}

  // Outputs begin as a number that no kernel gives.
  Numbers(Dtype dtype, int64_t count, int64_t skip = 0)
      : Numbers(dtype, std::vector<double>(static_cast<size_t>(count), 7777.0), skip) {}

  std::vector<double> first() const { return decoded(dtype_, initial_); }
  std::vector<double> now() const { return decoded(dtype_, bytes()); }

 private:
  static size_t size(Dtype dtype) { return dtype == Dtype::f32 ? 4 : 2; }

  template <class T>
  static std::vector<char> encoded_as(const std::vector<double>& values) {
    std::vector<T> rounded;
    rounded.reserve(values.size());
    for (double value : values) rounded.push_back(static_cast<T>(static_cast<float>(value)));
    return bytes_of(rounded);
  }
  static std::vector<char> encoded(Dtype dtype, const std::vector<double>& values) {
    if (dtype == Dtype::f32) return encoded_as<float>(values);
    return dtype == Dtype::bf16 ? encoded_as<__nv_bfloat16>(values) : encoded_as<__half>(values);
  }
  template <class T>
  static std::vector<double> decoded_as(const std::vector<char>& bytes) {
    std::vector<double> values;
    for (T value : values_of<T>(bytes)) values.push_back(static_cast<double>(static_cast<float>(value)));
    return values;
  }
  static std::vector<double> decoded(Dtype dtype, const std::vector<char>& bytes) {
    if (dtype == Dtype::f32) return decoded_as<float>(bytes);
    return dtype == Dtype::bf16 ? decoded_as<__nv_bfloat16>(bytes) : decoded_as<__half>(bytes);
  }

  Dtype dtype_;
};

// Runs `enqueue(stream)` twice and once more from a captured graph, everything in `memory` as at first each time, and
// expects the same bits. What the last run left can be read then.
inline void run_repeatedly(const std::vector<Memory*>& memory, const std::function<int(void*)>& enqueue) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  const auto after = [&](const std::function<void()>& run) {
    for (Memory* one : memory) one->reset();
    run();
    check(cudaStreamSynchronize(stream));
    std::vector<std::vector<char>> bytes;
    for (Memory* one : memory) bytes.push_back(one->bytes());
    return bytes;
  };
  const auto directly = [&] { ASSERT_EQ(enqueue(stream), 0); };
  const auto captured = [&] {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    ASSERT_EQ(enqueue(stream), 0);
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&exec, graph, 0));
    check(cudaGraphLaunch(exec, stream));
    check(cudaStreamSynchronize(stream));
    check(cudaGraphExecDestroy(exec));
    check(cudaGraphDestroy(graph));
  };
  const auto once = after(directly);
  EXPECT_TRUE(once == after(directly)) << "a second launch gave other bits";
  EXPECT_TRUE(once == after(captured)) << "a captured launch gave other bits";
  check(cudaStreamDestroy(stream));
}

// |found - wanted| <= relative * |wanted| + absolute everywhere; the first that is not is shown.
inline void expect_close(const std::vector<double>& found, const std::vector<double>& wanted, double relative,
                         double absolute, const std::string& what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    const double allowed = relative * std::abs(wanted[i]) + absolute;
    ASSERT_TRUE(std::abs(found[i] - wanted[i]) <= allowed)
        << what << "[" << i << "]: found " << found[i] << ", wanted " << wanted[i] << " within " << allowed;
  }
}

inline std::vector<double> widened(const std::vector<float>& values) { return {values.begin(), values.end()}; }

}  // namespace drivetrain::kernels::device_test
