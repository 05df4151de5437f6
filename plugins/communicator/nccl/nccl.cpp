// communicator/nccl: ranks with a GPU each, on one host or many. See group.h for the calls, comm.h for streams and
// events, tree_collectives.h for `deterministic`, board.h for what ranks tell each other, watchdog.h for what goes
// wrong.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include <drivetrain/communicator.h>
#include <drivetrain/plan_context.h>

#include "group.h"
#include "shared_gpu.h"
#include "tree_sum.h"
#include "watchdog.h"

namespace drivetrain::nccl {
namespace {

struct NcclOptions {
  double timeout_s = 300;
  bool deterministic = false;
};

// Says what is missing before CUDA or NCCL do. The runtime counted the GPUs when it opened its device; a plan is made
// where there is none.
at::Device usable_device(const Services& services) {
  if (services.device.is_cuda() && services.device.has_index()) return services.device;
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0)
    throw fail(ErrorCode::config, "communicator/nccl: rank ", services.rank,
               " wanted a GPU and there is no GPU (CUDA says: ",
               status == cudaSuccess ? "0 devices" : cudaGetErrorString(status),
               "). Install NVIDIA's driver or look at CUDA_VISIBLE_DEVICES; \"device\": \"cpu\" trains with "
               "communicator/local");
  const int64_t index = services.device.has_index() ? services.device.index() : services.local_rank;
  if (index >= count)
    throw fail(ErrorCode::config, "communicator/nccl: rank ", services.rank, " wanted GPU ", index,
               " of its host, which has ", count, ". Start at most ", count,
               " ranks there, or show them more with CUDA_VISIBLE_DEVICES");
  if (!services.device.is_cuda()) return services.device;
  return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index));
}

// Which network interface NCCL takes between hosts is its own choice, unless the user has made it.
void say_interface(Log& log) {
  const char* chosen = std::getenv("NCCL_SOCKET_IFNAME");
  log.info(chosen && *chosen
               ? concat("communicator/nccl: between hosts by NCCL_SOCKET_IFNAME=", chosen)
               : "communicator/nccl: NCCL chooses the interface between hosts (NCCL_DEBUG=INFO prints which); "
                 "NCCL_SOCKET_IFNAME chooses another, and `launch --env` or .deepspeed_env gives it to all ranks");
}

class NcclCommunicator final : public Communicator {
 public:
  using Options = NcclOptions;

  static OptionTable options() {
    return table<Options>()
        .field("timeout_s", &Options::timeout_s,
               "seconds that a call may take on the device, once its data is computed, before the run is aborted")
        .range(0.001, 1e6)
        .field("deterministic", &Options::deterministic,
               "add in the order of communicator/local, which costs time; without: in NCCL's own order");
  }

  NcclCommunicator(const Options& options, const Services& services)
      : options_(options),
        log_(services.log),
        world_size_(services.world_size),
        rank_(services.rank),
        device_(usable_device(services)) {
    if (world_size_ == 1) return;  // needs no store, no watchdog and no NCCL
    board_ = std::make_shared<Board>(services.store, rank_, world_size_, options.timeout_s);
    closings_ = std::make_shared<Closings>(board_, log_);
    watchdog_ = std::make_unique<Watchdog>(board_, device_.is_cuda() ? device_.index() : 0);
    if (services.local_size < world_size_) say_interface(log_);
  }

  ~NcclCommunicator() override {
    watchdog_.reset();
    if (!board_) return;
    board_->close();  // first: a peer that still waits for this rank has to learn that it left
    closings_->finish();
  }

  void plan(PlanContext& context) override {
    if (context.run().device != "cuda")
      context.refuse(
          concat("moves between GPUs only, and \"device\" is \"", context.run().device, "\"; use communicator/local"));
    context.capturable();
    if (world_size_ == 1) return;
    context.cost(options_.deterministic
                     ? "deterministic sums: one more pass over memory, and moving and adding do not overlap"
                     : "sums are in NCCL's own order: bits depend on the number of ranks and on NCCL's choice of "
                       "algorithm; \"deterministic\": true adds in the order of communicator/local");
  }

  GroupPtr make_group(const std::vector<int64_t>& ranks, const std::string& label) override {
    const bool ascending = std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
    const bool member = std::find(ranks.begin(), ranks.end(), rank_) != ranks.end();
    if (!ascending || !member || ranks.front() < 0 || ranks.back() >= world_size_)
      throw fail(ErrorCode::internal, "communicator/nccl: group \"", label, "\" on rank ", rank_,
                 ": wanted ascending ranks below ", world_size_, " that contain this one");
    if (ranks.size() == 1) return loopback_group(rank_, device_, label);
    if (ranks.size() > kMostTreeRanks)
      throw fail(ErrorCode::config, "communicator/nccl: group \"", label, "\" of ", ranks.size(),
                 " ranks; wanted at most ", kMostTreeRanks);
    if (!met_) check_shared_gpu(*board_, device_.is_cuda() ? device_.index() : 0);
    const auto comm = std::make_shared<Comm>(board_, device_, ranks, label, closings_);
    watchdog_->add(comm);
    if (!std::exchange(met_, true) && rank_ == 0) log_.info(library_in_use(*board_));
    return std::make_shared<NcclGroup>(comm, options_.deterministic);
  }

  void abort(const std::string& reason) noexcept override {
    try {
      if (!board_) return;
      board_->raise(concat("rank ", rank_, " aborted: ", reason));
      watchdog_->wake();
    } catch (...) {
      board_->raise("a rank aborted");  // no memory for the text
    }
  }

 private:
  const Options options_;
  Log& log_;
  const int64_t world_size_, rank_;
  const at::Device device_;
  std::shared_ptr<Board> board_;
  std::shared_ptr<Closings> closings_;
  std::unique_ptr<Watchdog> watchdog_;
  bool met_ = false;  // the first group is made
};

}  // namespace
}  // namespace drivetrain::nccl

DRIVETRAIN_PLUGIN(drivetrain::Communicator, "nccl", drivetrain::nccl::NcclCommunicator)
