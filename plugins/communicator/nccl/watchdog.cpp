#include "watchdog.h"

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain::nccl {
namespace {

// Of a call that is not finished: from then on it is worth asking who left.
constexpr double kSuspiciousS = 0.5;

}  // namespace

Watchdog::Watchdog(std::shared_ptr<Board> board, int device) : board_(std::move(board)), device_(device) {
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  bell_.notify_all();
  thread_.join();
}

void Watchdog::add(const CommPtr& comm) {
  const std::lock_guard lock(mutex_);
  std::erase_if(comms_, [](const auto& known) { return known.expired(); });
  comms_.push_back(comm);
}

void Watchdog::wake() { bell_.notify_all(); }

std::vector<CommPtr> Watchdog::comms() {
  std::vector<CommPtr> list;
  const std::lock_guard lock(mutex_);
  for (const auto& known : comms_)
    if (CommPtr comm = known.lock()) list.push_back(std::move(comm));
  return list;
}

void Watchdog::watch() {
  cudaSetDevice(device_);
  auto mode = cudaStreamCaptureModeThreadLocal;  // other threads' captures are none of ours
  cudaThreadExchangeStreamCaptureMode(&mode);
  const auto period = std::chrono::duration<double>(board_->period_s());
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const auto slept = Clock::now();
      if (!closing_ && !board_->aborted()) bell_.wait_for(lock, period);
      if (closing_) break;
      // This process was suspended meanwhile, and its calls on the device may wait for those that it had yet to make.
      if (Clock::now() - slept > period + std::chrono::seconds(1)) awake_since_ = Clock::now();
    }
    if (!look()) break;
  }
  for (const CommPtr& comm : comms()) comm->oldest();  // how far the device has come, for those who stay
  if (board_->aborted()) stop_all();
}

bool Watchdog::look() {
  const auto list = comms();
  try {
    if (board_->look([&](const std::string& label) { return status_of(label); })) return false;
    for (const CommPtr& comm : list) check_comm(*comm);
  } catch (const std::exception& lost) {
    // At the end of a run rank 0 and its store may leave first; while calls are open they may not.
    for (const CommPtr& comm : list)
      if (const auto oldest = comm->oldest(); oldest && oldest->age_s > kSuspiciousS)
        board_->raise(concat("rank ", board_->rank(), ", ", oldest->call.where(comm->label()), ": ", lost.what()));
  }
  return !board_->aborted();
}

void Watchdog::check_comm(Comm& comm) {
  if (comm.raise_async_error()) return;
  const auto oldest = comm.oldest();
  if (!oldest || oldest->age_s < kSuspiciousS) return;
  const CommStatus mine{
      0, oldest->call.number, oldest->call.text(), oldest->counts, oldest->replayed, oldest->in_replay};
  if (const std::string gone = board_->left(comm.ranks(), comm.label(), mine); !gone.empty()) {
    board_->raise(gone);
    return;
  }
  const double awake_s = std::chrono::duration<double>(Clock::now() - awake_since_).count();
  if (std::min(oldest->age_s, awake_s) < board_->timeout_s()) return;
  board_->report({comm.label(), comm.ranks(), mine}, [&](const std::string& label) { return status_of(label); });
}

CommStatus Watchdog::status_of(const std::string& label) {
  for (const CommPtr& comm : comms())
    if (comm->label() == label) return comm->status();
  return {};
}

// Side by side: what runs for one group may wait on the device for another's. The threads own what they stop, since a
// hanging device may keep them.
void Watchdog::stop_all() {
  for (const CommPtr& comm : comms()) std::thread([comm] { comm->stop(); }).detach();
}

}  // namespace drivetrain::nccl
