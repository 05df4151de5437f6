#include "comm.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <future>
#include <thread>

#include <drivetrain/device.h>
#include <drivetrain/error.h>
#include <drivetrain/toolkit/standstill.h>

namespace drivetrain::nccl {
namespace {

int64_t index_of(const std::vector<int64_t>& ranks, int64_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
}

}  // namespace

void check_cuda(cudaError_t status, const std::string& where, const char* what) {
  if (status != cudaSuccess)
    throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, status,
                                concat(where, ": ", what, " failed: CUDA error: ", cudaGetErrorString(status)));
}

std::string words_of(const std::exception& e) {
  const auto* const torch = dynamic_cast<const c10::Error*>(&e);
  return torch ? torch->what_without_backtrace() : e.what();
}

cudaError_t query(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) (void)cudaGetLastError();
  return status;
}

void use_device(int device) {
  int current = -1;
  if (cudaGetDevice(&current) != cudaSuccess || current != device) cudaSetDevice(device);
}

EventPool::~EventPool() {
  for (const cudaEvent_t event : free_) cudaEventDestroy(event);
}
cudaEvent_t EventPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const cudaEvent_t event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "a call", "cudaEventCreate");
  return event;
}
void EventPool::give(cudaEvent_t event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

Comm::Comm(std::shared_ptr<Board> board, at::Device device, std::vector<int64_t> ranks, std::string label,
           std::shared_ptr<Closings> closings)
    : board_(std::move(board)),
      device_(device),
      ranks_(std::move(ranks)),
      label_(std::move(label)),
      me_(index_of(ranks_, board_->rank())),
      counters_(board_->counters(label_)),
      closings_(std::move(closings)) {
  use_device(index());
  const std::string where = concat("make_group of group \"", label_, "\"");
  join_group(board_->meet(ranks_, label_, [&] {
    ncclUniqueId id;
    check_nccl(ncclGetUniqueId(&id), where, "ncclGetUniqueId");
    return std::string(id.internal, sizeof id.internal);
  }));
  int lowest = 0, highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), where, "cudaDeviceGetStreamPriorityRange");
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest), where, "cudaStreamCreate");
  check_cuda(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming), where, "cudaEventCreate");
  recorded_ = std::make_shared<RecordedCalls>(stream_);
}

// All ranks are here, so what can still take long is the network. NCCL's own wait has no limit: it runs on a thread
// that is left behind where the limit is over.
void Comm::join_group(const std::string& text) {
  const std::string where = concat("make_group of group \"", label_, "\"");
  ncclUniqueId id;
  if (text.size() != sizeof id.internal)
    throw fail(ErrorCode::internal, "communicator/nccl, ", where, ": the id has ", text.size(), " bytes");
  std::copy(text.begin(), text.end(), id.internal);
  const int size = static_cast<int>(ranks_.size()), me = static_cast<int>(me_), device = index();
  std::packaged_task<ncclComm_t()> task([id, size, me, device, where] {
    use_device(device);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    ncclComm_t comm = nullptr;
    check_nccl(ncclCommInitRankConfig(&comm, size, id, me, &config), where, "ncclCommInitRank");
    return comm;
  });
  std::future<ncclComm_t> joined = task.get_future();
  std::thread(std::move(task)).detach();
  auto deadline = Clock::now() + std::chrono::duration<double>(board_->timeout_s());
  const auto joins = [&] { return joined.wait_for(std::chrono::milliseconds(20)) == std::future_status::ready; };
  for (bool ready = false; !ready;) {
    deadline += standstill_in([&] { ready = joins(); });
    if (!ready && Clock::now() > deadline)
      board_->raise(concat("NCCL did not join the ", size, " ranks of group \"", label_, "\" within ",
                           board_->timeout_s(),
                           " s. NCCL_DEBUG=INFO shows which address it tries; NCCL_SOCKET_IFNAME chooses another"));
    if (!ready) board_->throw_if_ended(where);
  }
  try {
    comm_ = joined.get();
  } catch (const std::exception& error) {
    board_->raise_own(concat("rank ", board_->rank(), ": ", words_of(error)), std::current_exception());
    throw;
  }
}

Comm::~Comm() { destroy(); }

// What calls that are not done use lives until they are, or for ever if they never are. Replays have other streams: the
// device is through with them when training ends.
void Comm::destroy() {
  const bool aborted = board_->aborted();
  if (recorded_) counters_.replayed->store(recorded_->collectives());
  std::packaged_task<void()> close([aborted, comm = comm_.load(), stream = stream_, ready = ready_, device = index(),
                                    recorded = std::move(recorded_), marks = std::move(marks_)]() mutable {
    use_device(device);
    if (!aborted && stream != nullptr) cudaStreamSynchronize(stream);
    if (comm != nullptr) aborted ? ncclCommAbort(comm) : ncclCommDestroy(comm);
    marks.clear();
    cudaEventDestroy(ready);
    cudaStreamDestroy(stream);
    recorded.reset();
  });
  closings_->begin(label_, std::move(close));
}

bool Comm::capturing() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const auto current = static_cast<cudaStream_t>(current_stream(device_));
  check_cuda(cudaStreamIsCapturing(current, &status), "capturing", "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

MarkPtr Comm::enqueue(const Call& call, const Body& body, Counts counts) {
  if (board_->aborted()) board_->throw_if_ended(where(call));
  use_device(index());
  const auto current = static_cast<cudaStream_t>(current_stream(device_));
  const bool captured = capturing();
  const auto mark = std::make_shared<Mark>(events_, call, std::move(counts));
  {
    const std::lock_guard lock(marks_mutex_);
    marks_.push_back(mark);
    if (call.number > 0) *counters_.reached = call.number;
  }
  try {
    const std::lock_guard use(use_);
    const ncclComm_t comm = comm_;
    board_->throw_if_ended(where(call));
    check_cuda(cudaEventRecord(ready_, current), where(call), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(stream_, ready_, 0), where(call), "cudaStreamWaitEvent");
    if (captured)
      recorded_->begin(call, mark->counts, stream_);
    else
      check_cuda(cudaEventRecord(mark->start, stream_), where(call), "cudaEventRecord");
    check_nccl(body(comm, stream_), where(call), call.text().c_str());
    if (captured) recorded_->end(stream_);
    check_cuda(cudaEventRecord(mark->event, stream_), where(call), "cudaEventRecord");
  } catch (const std::exception& error) {
    forget(mark);
    if (!board_->aborted())
      board_->raise_own(concat("rank ", board_->rank(), ": ", words_of(error)), std::current_exception());
    board_->throw_if_ended(where(call));
    throw;
  }
  // Never both: the event of a captured call belongs to the graph, and the watchdog asks for what is recorded.
  if (captured)
    forget(mark);
  else
    mark->recorded = true;
  return mark;
}

void Comm::join(const Mark& mark) const {
  if (board_->aborted()) board_->throw_if_ended(where(mark.call));
  const auto current = static_cast<cudaStream_t>(current_stream(device_));
  check_cuda(cudaStreamWaitEvent(current, mark.event, 0), where(mark.call), "cudaStreamWaitEvent");
}

void Comm::hold(const MarkPtr& mark, std::vector<at::Tensor> tensors) {
  const std::lock_guard lock(marks_mutex_);
  if (std::find(marks_.begin(), marks_.end(), mark) != marks_.end()) mark->held = std::move(tensors);
}

void Comm::forget(const MarkPtr& mark) {
  const std::lock_guard lock(marks_mutex_);
  std::erase(marks_, mark);
}

}  // namespace drivetrain::nccl
