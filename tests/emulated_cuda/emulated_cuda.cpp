#include "emulated_cuda.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

// Leaves the running stack, its pointer in *from, for the stack `to`. x86-64; the kept registers are those of its
// calling convention.
extern "C" void emulated_cuda_switch(void** from, void* to);
asm(R"(
  .text
  .type emulated_cuda_switch, @function
emulated_cuda_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");

namespace emulated_cuda {

namespace {

constexpr size_t kStack = 64 * 1024;
constexpr int kWarp = 32;

[[noreturn]] void stop(const char* what) {
  std::fprintf(stderr, "emulated_cuda: %s (block %u)\n", what, blockIdx.x);
  std::abort();
}

// Threads that meet: all that still run must arrive before any goes on.
struct Meeting {
  int members = 0, arrived = 0;
  uint64_t round = 0;
  uint64_t values[2][kWarp] = {};  // of this round and the one before
};

struct Fibre {
  void* context = nullptr;  // its stack pointer
  std::unique_ptr<char[]> stack{new char[kStack]};
  Meeting* waits_for = nullptr;
  uint64_t round = 0;
  bool running = false;
};

std::vector<Fibre> fibres;
std::vector<Meeting> warps;
Meeting block;
void* scheduler = nullptr;
[[maybe_unused]] const void* scheduler_stack = nullptr;  // for the sanitizer
[[maybe_unused]] size_t scheduler_stack_size = 0;
int current = -1;
bool reversed = true;
const std::function<void()>* work = nullptr;

void to_scheduler() {
  Fibre& self = fibres[static_cast<size_t>(current)];
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(nullptr, scheduler_stack, scheduler_stack_size);
#endif
  emulated_cuda_switch(&self.context, scheduler);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_size);
#endif
}

void release_if_complete(Meeting& meeting) {
  if (meeting.members == 0 || meeting.arrived < meeting.members) return;
  meeting.arrived = 0;
  ++meeting.round;
}

void meet(Meeting& meeting) {
  Fibre& self = fibres[static_cast<size_t>(current)];
  self.round = meeting.round;
  self.waits_for = &meeting;
  ++meeting.arrived;
  release_if_complete(meeting);
  to_scheduler();
}

void start() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_size);
#endif
  (*work)();
  Fibre& self = fibres[static_cast<size_t>(current)];
  self.running = false;
  Meeting& warp = warps[static_cast<size_t>(current / kWarp)];
  --block.members;
  --warp.members;
  release_if_complete(block);
  release_if_complete(warp);
  to_scheduler();
}

void resume(int thread) {
  current = thread;
  threadIdx = {static_cast<unsigned>(thread), 0, 0};
  Fibre& fibre = fibres[static_cast<size_t>(thread)];
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(nullptr, fibre.stack.get(), kStack);
#endif
  emulated_cuda_switch(&scheduler, fibre.context);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

// The stack of a fibre as if it had switched away just before `start`: six registers, where to return to, and aligned
// as in a call.
void prepare(Fibre& fibre) {
  fibre.waits_for = nullptr;
  fibre.running = true;
  auto** top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(fibre.stack.get() + kStack) & ~uintptr_t{15}) - 8;
  top[6] = reinterpret_cast<void*>(&start);
  fibre.context = top;
}

// Runs the threads of a warp until all wait for other warps: a warp gets as far ahead of the others as it ever can.
// Returns whether any ran.
bool run_warp(int first, int last) {
  bool any = false;
  for (bool progress = true; progress;) {
    progress = false;
    for (int k = first; k < last; ++k) {
      const int i = reversed ? first + last - 1 - k : k;
      Fibre& fibre = fibres[static_cast<size_t>(i)];
      if (!fibre.running || (fibre.waits_for && fibre.waits_for->round == fibre.round)) continue;
      fibre.waits_for = nullptr;
      any = progress = true;
      resume(i);
    }
  }
  return any;
}

void run_block(int threads) {
  if (fibres.size() < static_cast<size_t>(threads)) fibres.resize(static_cast<size_t>(threads));
  const int warp_count = (threads + kWarp - 1) / kWarp;
  warps.assign(static_cast<size_t>(warp_count), {});
  block = {.members = threads};
  for (int i = 0; i < threads; ++i) {
    prepare(fibres[static_cast<size_t>(i)]);
    ++warps[static_cast<size_t>(i / kWarp)].members;
  }
  while (block.members > 0) {
    bool any = false;
    for (int k = 0; k < warp_count; ++k) {
      const int first = (reversed ? warp_count - 1 - k : k) * kWarp;
      any = run_warp(first, std::min(first + kWarp, threads)) || any;
    }
    if (!any) stop("threads wait for each other: not all reach a barrier or a shuffle");
  }
}

}  // namespace

void run(dim3 grid, dim3 block_dim, const std::function<void()>& body) {
  blockDim = block_dim;
  gridDim = grid;
  work = &body;
  reversed = !reversed;
  for (unsigned i = 0; i < grid.x; ++i) {
    blockIdx = {i, 0, 0};
    run_block(static_cast<int>(block_dim.x));
  }
}

void barrier() { meet(block); }

uint64_t exchange(uint64_t value, int from) {
  Meeting& warp = warps[static_cast<size_t>(current / kWarp)];
  const uint64_t turn = warp.round % 2;
  warp.values[turn][current % kWarp] = value;
  meet(warp);
  if (from >= 0) return warp.values[turn][from % kWarp];
  uint64_t bits = 0;
  for (int i = 0; i < kWarp; ++i) bits |= uint64_t{warp.values[turn][i] != 0} << i;
  return bits;
}

namespace {

std::vector<std::function<void()>>* recording = nullptr;

}  // namespace

int enqueue(const cudaLaunchConfig_t& config, std::function<void()> body) {
  if (config.blockDim.x == 0 || config.blockDim.x > 1024 || config.gridDim.x == 0) return cudaErrorInvalidConfiguration;
  auto launch = [grid = config.gridDim, block_dim = config.blockDim, body = std::move(body)] {
    run(grid, block_dim, body);
  };
  if (recording)
    recording->push_back(launch);
  else
    launch();
  return cudaSuccess;
}

}  // namespace emulated_cuda

// The runtime's functions that kernels and their tests call.
struct CUgraph_st {
  std::vector<std::function<void()>> launches;
};

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
// Two multiprocessors of sm_90.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  return *value = which == cudaDevAttrComputeCapabilityMajor ? 9 : 2, cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) { return "an error of the emulated CUDA runtime"; }

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return posix_memalign(memory, 256, bytes) == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* memory) { return std::free(memory), cudaSuccess; }
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return *stream = nullptr, cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  emulated_cuda::recording = new std::vector<std::function<void()>>;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = new CUgraph_st{std::move(*emulated_cuda::recording)};
  delete emulated_cuda::recording;
  emulated_cuda::recording = nullptr;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = reinterpret_cast<cudaGraphExec_t>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  for (const auto& launch : reinterpret_cast<cudaGraph_t>(exec)->launches) launch();
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }

}  // extern "C"
