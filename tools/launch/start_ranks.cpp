#include "launch/start_ranks.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace drivetrain::program {
namespace {

struct Pipe {
  Descriptor from, to;
};

Pipe new_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "launch: pipe");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

void do_not_wait_at(const Descriptor& end) { fcntl(end.get(), F_SETFL, O_NONBLOCK); }

// A pipe whose write end goes to the rank.
std::unique_ptr<LineRelay> relayed(Descriptor& write_end, int to, const std::string& prefix) {
  Pipe pipe = new_pipe();
  write_end = std::move(pipe.to);
  do_not_wait_at(pipe.from);
  return std::make_unique<LineRelay>(std::move(pipe.from), to, prefix);
}

// What rank 0 alone gets.
struct ForRank0 {
  Descriptor listener, news, restart_points;
};

class Starter {
 public:
  Starter(const RanksToStart& wanted, const ConfigDocument& config, const sigset_t* mask)
      : wanted_(wanted), config_(config), mask_(mask) {}

  void start(StartedRanks& started) {
    ForRank0 own = prepare(started);
    const int count = wanted_.only_rank_0 ? 1 : wanted_.count;
    started.ranks.resize(static_cast<size_t>(count));
    for (int rank = 0; rank < count; ++rank) {
      start_one(rank, own, started.ranks[static_cast<size_t>(rank)]);
      own = ForRank0();  // if rank 0 dies, others are refused at once instead of waiting
    }
  }

 private:
  ForRank0 prepare(StartedRanks& started) {
    ForRank0 own;
    own.listener = listen_on_free_port(port_);
    Pipe news = new_pipe();
    own.news = std::move(news.from), started.news = std::move(news.to);
    do_not_wait_at(started.news);  // a stopped rank 0 reads nothing
    if (!wanted_.ask_restart_points) return own;
    Pipe points = new_pipe();
    do_not_wait_at(points.from);
    do_not_wait_at(points.to);  // nor does a stopped launcher
    own.restart_points = std::move(points.to), started.restart_points = RestartPoints(std::move(points.from));
    return own;
  }

  void start_one(int rank, const ForRank0& own, RankState& state) const {
    const std::string prefix = rank == 0 ? "" : "[rank " + std::to_string(rank) + "] ";
    Descriptor out, err;
    if (rank != 0) state.out = relayed(out, wanted_.out, prefix);
    // On a terminal rank 0's two streams must stay in order, which a pipe for one of them would not keep.
    if (rank != 0 || !isatty(wanted_.err)) state.err = relayed(err, wanted_.err, prefix);
    RankStart start;
    start.command = &wanted_.command;
    start.environment = environment_of(rank);
    start.out = rank == 0 ? wanted_.out : out.get();
    start.err = err.get();
    start.inherited = {{"DRIVETRAIN_LISTEN_FD", own.listener.get()},
                       {"DRIVETRAIN_NEWS_FD", own.news.get()},
                       {"DRIVETRAIN_RESTART_POINTS_FD", own.restart_points.get()}};
    start.config = config_.file.get(), start.config_number = config_.number;
    start.signal_mask = mask_;
    state.pid = start_rank(start);
  }

  std::vector<std::string> environment_of(int rank) const {
    const std::string number = std::to_string(rank), world = std::to_string(wanted_.count);
    std::vector<std::string> list = wanted_.environment;
    for (const std::string& entry :
         {"RANK=" + number, "LOCAL_RANK=" + number, "WORLD_SIZE=" + world, "LOCAL_WORLD_SIZE=" + world,
          std::string("MASTER_ADDR=127.0.0.1"), "MASTER_PORT=" + std::to_string(port_),
          std::string("DRIVETRAIN_MASTER_LISTENS=1"), "DRIVETRAIN_RUN_TOKEN=" + token_})
      list.push_back(entry);
    return list;
  }

  const RanksToStart& wanted_;
  const ConfigDocument& config_;
  const sigset_t* const mask_;
  const std::string token_ = new_run_token();  // by environment: a command line can be read by everybody
  int port_ = 0;
};

}  // namespace

void start_ranks(const RanksToStart& wanted, const ConfigDocument& config, const sigset_t* signal_mask,
                 StartedRanks& started) {
  Starter(wanted, config, signal_mask).start(started);
}

}  // namespace drivetrain::program
