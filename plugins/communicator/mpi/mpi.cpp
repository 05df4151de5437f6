// communicator/mpi: ranks that mpirun started, on one host or many. See group.h for the calls, collectives.h for sums
// by the fixed tree, lane.h for progress and time-outs, board.h for what ranks tell each other, process.h for MPI's
// start and end.
#include <algorithm>
#include <thread>

#include <drivetrain/communicator.h>
#include <drivetrain/plan_context.h>
#include <drivetrain/services.h>

#include "group.h"
#include "process.h"

namespace drivetrain::mpi {
namespace {

struct MpiOptions {
  double timeout_s = 300;
  int64_t piece_bytes = 4 << 20;
};

// Two pieces of every other rank are under way at once.
constexpr int64_t kMostScratchBytes = 64 << 20;

// The same on all members of a group, which meet by label first.
int tag_of(const std::string& label) {
  uint32_t hash = 2166136261U;
  for (const char c : label) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619U;
  return static_cast<int>(hash % 32768);  // MPI promises no larger tags
}

// Blocks with the mutex held: all members are here or on their way, and nothing that they wait for needs this rank.
MPI_Comm make_comm(const std::vector<int64_t>& ranks, const std::string& label) {
  if (ranks.size() == 1) return MPI_COMM_SELF;
  const std::lock_guard lock(mpi_mutex());
  const std::vector<int> members(ranks.begin(), ranks.end());
  MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(world, static_cast<int>(members.size()), members.data(), &group), "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag_of(label), &comm), "MPI_Comm_create_group");
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Group_free(&group), MPI_Group_free(&world);
  return comm;
}

class MpiCommunicator final : public Communicator {
 public:
  using Options = MpiOptions;

  static OptionTable options() {
    return table<Options>()
        .field("timeout_s", &Options::timeout_s, "seconds to wait for another rank before giving up")
        .range(0.001, 1e6)
        .field("piece_bytes", &Options::piece_bytes,
               "what a step of a sum receives from each other rank; less where many ranks would need more than 64 MB")
        .range(64, 1 << 30);
  }

  MpiCommunicator(const Options& options, const Services& services)
      : options_(options),
        world_size_(services.world_size),
        claim_(services.rank),
        board_(std::make_shared<Board>(services.store, services.rank, services.world_size, options.timeout_s)),
        engine_(std::make_shared<Engine>(board_, services.local_size <= std::thread::hardware_concurrency())) {}

  ~MpiCommunicator() override { board_->close(); }

  void plan(PlanContext& context) override {
    if (context.run().device != "cpu")
      context.refuse(concat("moves tensors of the CPU only, and \"device\" is \"", context.run().device,
                            "\"; use communicator/nccl"));
  }

  // Started here and not with the object: a plan needs no MPI, and ranks that do not come are named by the rendezvous.
  GroupPtr make_group(const std::vector<int64_t>& ranks, const std::string& label) override {
    const int64_t rank = board_->rank();
    const bool ascending = std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
    const auto own = std::find(ranks.begin(), ranks.end(), rank);
    if (!ascending || own == ranks.end() || ranks.front() < 0 || ranks.back() >= world_size_)
      throw fail(ErrorCode::internal, "communicator/mpi: group \"", label, "\" on rank ", rank,
                 ": wanted ascending ranks below ", world_size_, " that contain this one");
    start_mpi(rank, world_size_);
    board_->meet(ranks, label, [this] { return engine_->advance(); });
    const Wire wire{make_comm(ranks, label), static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()),
                    piece_bytes(static_cast<int64_t>(ranks.size()))};
    return std::make_shared<MpiGroup>(std::make_shared<Lane>(engine_, wire, ranks, label));
  }

  void abort(const std::string& reason) noexcept override {
    try {
      board_->raise(concat("rank ", board_->rank(), " aborted: ", reason));
    } catch (...) {
      board_->raise("a rank aborted");  // no memory for the text
    }
  }

 private:
  int64_t piece_bytes(int64_t ranks) const {
    const int64_t fits = kMostScratchBytes / (2 * ranks) / 64 * 64;
    return std::min(options_.piece_bytes, std::max<int64_t>(64, fits));
  }

  const Options options_;
  const int64_t world_size_;
  const ProcessClaim claim_;
  const BoardPtr board_;
  const std::shared_ptr<Engine> engine_;
};

}  // namespace
}  // namespace drivetrain::mpi

DRIVETRAIN_PLUGIN(drivetrain::Communicator, "mpi", drivetrain::mpi::MpiCommunicator)
