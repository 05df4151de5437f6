// communicator/mpi: ranks that mpirun started, on one host or many. Here is how messages are carried; calls, sums,
// progress and time-outs are the toolkit's (messages/message_communicator.h). See process.h for MPI's start and end.
#include <mpi.h>

#include <algorithm>

#include <drivetrain/toolkit/messages/message_communicator.h>
#include <drivetrain/toolkit/messages/shared_memory_carrier.h>

#include "process.h"

namespace drivetrain::mpi {
namespace {

using toolkit::TransferPtr;

using MpiOptions = toolkit::MessageOptions;

// At least: a library that starts on a busy machine is not yet a rank that is lost.
constexpr double kStartMayTakeS = 30;
// At most: MPI_Finalize once every rank is done, and the wait for the others to say that they are. Without their word
// nothing is lost (process.cpp), and this rank's destructor is no place to stay for longer.
constexpr double kFinalizeMayTakeS = 30, kOthersMayEndS = 60;

// The same on all members of a group, which meet by label first.
int tag_of(const std::string& label) {
  uint32_t hash = 2166136261U;
  for (const char c : label) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619U;
  return static_cast<int>(hash % 32768);  // MPI promises no larger tags
}

// Blocks with the mutex held: all members are here or on their way, and nothing that they wait for needs this rank.
MPI_Comm make_comm(const std::vector<int64_t>& ranks, const std::string& label, double timeout_s) {
  if (ranks.size() == 1) return MPI_COMM_SELF;
  const std::lock_guard lock(mpi_mutex());
  const std::vector<int> members(ranks.begin(), ranks.end());
  MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(world, static_cast<int>(members.size()), members.data(), &group), "MPI_Group_incl");
  {
    const std::string call = concat("MPI_Comm_create_group of group \"", label, "\"");
    const Deadline deadline(did_not_return(call, timeout_s), timeout_s, kPeerLost);
    check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag_of(label), &comm), "MPI_Comm_create_group");
  }
  check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Group_free(&group), MPI_Group_free(&world);
  return comm;
}

// What MPI has said is sent may still have to leave this process.
void make_progress() {
  const std::lock_guard lock(mpi_mutex());
  int is_there = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
}

struct MpiTransfer final : toolkit::Transfer {
  MPI_Request request = MPI_REQUEST_NULL;
  bool done() override {
    int arrived = 0;
    check_mpi(MPI_Test(&request, &arrived, MPI_STATUS_IGNORE), "MPI_Test");
    return arrived != 0;
  }
};

// Channels are indices of MPI communicators. Those are kept: freeing one is a collective call, and ranks drop groups
// when they like.
class MpiCarrier final : public toolkit::Carrier {
 public:
  MpiCarrier(int64_t rank, int64_t world_size, double timeout_s)
      : rank_(rank), world_size_(world_size), start_may_take_s_(std::max(timeout_s, kStartMayTakeS)), claim_(rank) {}

  // Here and not with the object: a plan needs no MPI, and ranks that do not come are named by the rendezvous.
  void start() override {
    start_mpi(rank_, world_size_, start_may_take_s_);
    started_ = true;
  }
  bool started() const { return started_; }

  int64_t open(const toolkit::Members& members, const std::function<void()>&) override {
    comms_.push_back(make_comm(members.ranks, members.label, start_may_take_s_));
    return static_cast<int64_t>(comms_.size()) - 1;
  }

  TransferPtr send(int64_t channel, int to, int tag, const void* data, int64_t bytes) override {
    auto transfer = std::make_shared<MpiTransfer>();
    check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, comm(channel), &transfer->request),
              "MPI_Isend");
    return transfer;
  }
  TransferPtr recv(int64_t channel, int from, int tag, void* data, int64_t bytes) override {
    auto transfer = std::make_shared<MpiTransfer>();
    check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, comm(channel), &transfer->request),
              "MPI_Irecv");
    return transfer;
  }
  int64_t most_bytes() const override { return int64_t{1} << 30; }  // MPI counts in int

  void aborted(bool ours) noexcept override { note_failure(ours); }
  std::mutex& mutex() override { return mpi_mutex(); }

 private:
  MPI_Comm comm(int64_t channel) const { return comms_[static_cast<size_t>(channel)]; }

  const int64_t rank_, world_size_;
  const double start_may_take_s_;
  const ProcessClaim claim_;
  bool started_ = false;
  std::vector<MPI_Comm> comms_;
};

class MpiCommunicator final : public toolkit::MessageCommunicator {
 public:
  using Options = MpiOptions;

  static OptionTable options() { return toolkit::message_table<Options>(); }

  MpiCommunicator(const Options& options, const Services& services)
      : MpiCommunicator(options, services,
                        std::make_shared<MpiCarrier>(services.rank, services.world_size, options.timeout_s)) {}

  // The last of a rank's plugins to go (plan/prepared_run.h): all that the run leaves has been written by now.
  ~MpiCommunicator() override {
    if (!mpi_->started()) return;
    const bool all = close_with_all(std::min(timeout_s_, kOthersMayEndS), make_progress);
    note_end_of_run(all, std::min(timeout_s_, kFinalizeMayTakeS));
  }

 private:
  MpiCommunicator(const Options& options, const Services& services, const std::shared_ptr<MpiCarrier>& mpi)
      : MessageCommunicator({"communicator/mpi", options.timeout_s, options.piece_bytes, options.share}, services,
                            carrier(options, services, mpi)),
        timeout_s_(options.timeout_s),
        mpi_(mpi) {}

  static std::shared_ptr<toolkit::Carrier> carrier(const Options& options, const Services& services,
                                                   const std::shared_ptr<MpiCarrier>& mpi) {
    if (!options.share) return mpi;
    return std::make_shared<toolkit::SharedMemoryCarrier>(mpi, services, options.timeout_s);
  }

  const double timeout_s_;
  const std::shared_ptr<MpiCarrier> mpi_;
};

}  // namespace
}  // namespace drivetrain::mpi

DRIVETRAIN_PLUGIN(drivetrain::Communicator, "mpi", drivetrain::mpi::MpiCommunicator)
