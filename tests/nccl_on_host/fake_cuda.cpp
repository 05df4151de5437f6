#include "fake_cuda.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "tree_sum.h"

namespace drivetrain::nccl {
thread_local cudaError_t host_events_answer = cudaSuccess;
}

// What was recorded last; waiters keep the version that they wait for.
struct CUevent_st {
  drivetrain::nccl::EventVersion reached = std::make_shared<std::atomic<bool>>(true);
  cudaError_t answer = drivetrain::nccl::host_events_answer;
  // Where it was recorded last, if that was in a graph.
  std::shared_ptr<drivetrain::nccl::HostRecording> recording;
  drivetrain::nccl::TasksBefore after;
};

struct CUstream_st {
  std::mutex mutex;
  std::condition_variable bell;
  std::deque<std::function<void()>> tasks;
  bool closing = false;
  std::thread thread{[this] { run(); }};

  void push(std::function<void()> task) {
    const std::lock_guard lock(mutex);
    tasks.push_back(std::move(task));
    bell.notify_one();
  }
  void run() {
    for (;;) {
      std::unique_lock lock(mutex);
      bell.wait(lock, [&] { return closing || !tasks.empty(); });
      if (tasks.empty()) return;
      const auto task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
    }
  }
};

namespace drivetrain::nccl {

std::atomic<int> host_busy_ms = 0;
thread_local cudaError_t host_last_error = cudaSuccess;
std::atomic<const char*> host_gpu_name = "stand-in";
std::atomic<bool> host_gpus_differ = false;
std::atomic<bool> host_capturing = false;
std::atomic<int> host_queries_while_capturing = 0;

namespace {

thread_local cudaStream_t own_stream = nullptr;  // in place of the null stream
thread_local std::shared_ptr<HostRecording> recording_now;

// Without being counted as work: events.
void enqueue(cudaStream_t stream, std::function<void()> task) {
  if (stream == nullptr) stream = own_stream;
  if (recording_now) return recording_now->tasks.emplace_back(stream, std::move(task)), void();
  if (stream == nullptr) return task();
  stream->push(std::move(task));
}

TasksBefore& branch(cudaStream_t stream) { return recording_now->streams[stream == nullptr ? own_stream : stream]; }

EventVersion new_event_version() {
  auto version = std::make_shared<std::atomic<bool>>(false);
  if (recording_now) recording_now->events.push_back(version);
  return version;
}

}  // namespace

void enqueue_on_host(cudaStream_t stream, std::function<void()> task) {
  if (recording_now) ++branch(stream)[stream == nullptr ? own_stream : stream];
  enqueue(stream, std::move(task));
}

HostDevice::HostDevice() : stream_(new CUstream_st) { own_stream = stream_; }
HostDevice::~HostDevice() {
  own_stream = nullptr;
  cudaStreamDestroy(stream_);
}

bool HostDevice::synchronize(double within_s) const {
  const auto reached = std::make_shared<std::promise<void>>();
  stream_->push([reached] { reached->set_value(); });
  // Waits: a deadline that only ends a test that hangs
  return reached->get_future().wait_for(std::chrono::duration<double>(within_s)) == std::future_status::ready;
}

bool host_records() { return recording_now != nullptr; }

void HostGraph::begin() { recording_now = recording_; }

bool HostGraph::end() {
  if (!recording_now) return false;
  TasksBefore& joined = branch(nullptr);
  bool whole = true;
  for (auto& [stream, before] : recording_->streams) whole = whole && joined[stream] == before[stream];
  recording_now = nullptr;
  return whole;
}

// It begins when its stream comes to it, and is one piece of it: what it forked to other streams waits for nothing that
// was enqueued there.
void HostGraph::replay() {
  own_stream->push([recording = recording_, stream = own_stream] {
    for (const auto& event : recording->events) *event = false;
    std::map<cudaStream_t, std::vector<const std::function<void()>*>> branches;
    for (const auto& [on, task] : recording->tasks) branches[on].push_back(&task);
    const auto run = [](const std::vector<const std::function<void()>*>& tasks) {
      for (const auto* task : tasks) (*task)();
    };
    std::vector<std::thread> threads;
    for (const auto& [on, tasks] : branches)
      if (on != stream) threads.emplace_back(run, std::cref(tasks));
    run(branches[stream]);
    for (std::thread& thread : threads) thread.join();
  });
}

namespace {

void reach(std::atomic<bool>& event) {
  event = true;
  event.notify_all();
}

}  // namespace
}  // namespace drivetrain::nccl

using drivetrain::nccl::enqueue_on_host;

extern "C" {
cudaError_t cudaGetDeviceCount(int* count) { return *count = 64, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* gpu, int) {
  static std::atomic<char> made = 1;
  std::strcpy(gpu->name, drivetrain::nccl::host_gpu_name);
  if (drivetrain::nccl::host_gpus_differ) gpu->uuid.bytes[0] = made++;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(drivetrain::nccl::host_last_error, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t) { return "an error of the stand-in"; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  return *lowest = 0, *highest = -5, cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return *stream = new CUstream_st, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const std::lock_guard lock(stream->mutex);
    stream->closing = true;
  }
  stream->bell.notify_one();
  stream->thread.join();
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  using namespace drivetrain::nccl;
  if (recording_now && event->recording != recording_now) return cudaErrorStreamCaptureIsolation;
  if (!recording_now && event->recording) return cudaErrorCapturedEvent;
  if (recording_now)
    for (const auto& [of, tasks] : event->after) branch(stream)[of] = std::max(branch(stream)[of], tasks);
  enqueue(stream, [reached = event->reached] { reached->wait(false); });
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream == nullptr) return cudaSuccess;
  const auto reached = std::make_shared<std::promise<void>>();
  stream->push([reached] { reached->set_value(); });
  return reached->get_future().wait(), cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  const bool capturing = drivetrain::nccl::host_capturing || drivetrain::nccl::recording_now;
  *status = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return *event = new CUevent_st, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  using namespace drivetrain::nccl;
  event->reached = new_event_version();
  event->recording = recording_now;
  if (recording_now) event->after = branch(stream);
  const int busy_ms = stream == nullptr ? drivetrain::nccl::host_busy_ms.load() : 0;
  if (busy_ms == 0) {
    enqueue(stream, [reached = event->reached] { reach(*reached); });
    return cudaSuccess;
  }
  std::thread([reached = event->reached, busy_ms] {
    // Waits: a stream that is busy is what the test asked for
    std::this_thread::sleep_for(std::chrono::milliseconds(busy_ms));
    drivetrain::nccl::reach(*reached);
  }).detach();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (drivetrain::nccl::host_capturing) ++drivetrain::nccl::host_queries_while_capturing;
  if (event->answer != cudaSuccess) return event->answer;
  if (*event->reached) return cudaSuccess;
  return drivetrain::nccl::host_last_error = cudaErrorNotReady;  // it may be found by a caller of cudaGetLastError
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  return *memory = std::calloc(1, bytes), cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) { return std::free(memory), cudaSuccess; }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  enqueue_on_host(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
}
