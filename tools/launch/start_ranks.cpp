#include "launch/start_ranks.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <system_error>

#include "hosts/visible_devices.h"
#include "launch/rank_log.h"
#include "launch/report.h"

namespace drivetrain::program {
namespace {

// The launcher has given it up by then (kSilenceS), and its connection is closed. Whoever stops a launcher means it.
constexpr double kAgentMayStandS = 15;

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
std::unique_ptr<LineRelay> relayed(Descriptor& write_end, Outlet* to, const std::string& prefix,
                                   LineRelay::Listener listener = {}) {
  Pipe pipe = new_pipe();
  write_end = std::move(pipe.to);
  do_not_wait_at(pipe.from);
  return std::make_unique<LineRelay>(std::move(pipe.from), to, prefix, std::move(listener));
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
    ForRank0 own;
    if (wanted_.place.first == 0) own = prepare(started);
    const int count = wanted_.only_rank_0 ? 1 : here();
    if (wanted_.setup.bind_cores) cores_.emplace(wanted_.setup.core_list, here(), visible_devices());
    started.guardian = std::make_unique<Guardian>(launch_id_, wanted_.others ? kAgentMayStandS : 0);
    started.ranks.resize(static_cast<size_t>(count));
    for (int local = 0; local < count; ++local) started.ranks[static_cast<size_t>(local)].number = first() + local;
    for (int local = 0; local < count; ++local) {
      start_one(local, own, started.ranks[static_cast<size_t>(local)]);
      own = ForRank0();  // if rank 0 dies, others are refused at once instead of waiting
    }
  }

 private:
  ForRank0 prepare(StartedRanks& started) {
    ForRank0 own;
    if (!wanted_.place.has_others())
      own.listener = listen_on_free_port(port_);
    else
      own.listener = Descriptor(wanted_.place.listener);
    Pipe news = new_pipe();
    own.news = std::move(news.from), started.news = std::move(news.to);
    do_not_wait_at(started.news);  // a stopped rank 0 reads nothing
    Pipe points = new_pipe();
    do_not_wait_at(points.from);
    do_not_wait_at(points.to);  // nor does a stopped launcher
    own.restart_points = std::move(points.to),
    started.restart_points = RestartPoints(std::move(points.from), points_listener());
    return own;
  }

  int first() const { return wanted_.place.first; }
  int here() const { return wanted_.place.has_others() ? wanted_.place.here : wanted_.count; }

  LineRelay::Listener listener(int rank, bool is_error) const {
    OtherHosts* const others = wanted_.others;
    if (!others) return {};
    return [=](const std::string& bytes) { others->output(rank, is_error, bytes); };
  }

  std::string prefix_of(int rank) const { return rank == 0 ? "" : "[rank " + std::to_string(rank) + "] "; }

  Outlet* out() const { return wanted_.outlets ? &wanted_.outlets->out : nullptr; }
  Outlet* err() const { return wanted_.outlets ? &wanted_.outlets->err : nullptr; }

  // On a terminal rank 0's two streams must stay in order, which a pipe for one of them would not keep. At a pipe that
  // nobody reads it would wait for ever, whatever it is told.
  bool inherits_stdout(int rank) const {
    return rank == 0 && !wanted_.others && (!out()->may_fill() || isatty(out()->fd()));
  }
  bool inherits_stderr(int rank) const { return rank == 0 && !wanted_.others && isatty(err()->fd()); }

  // To the log, and what is an error or a last word also here.
  Descriptor open_log(RankState& state, RankStart& start) const {
    const auto say = [others = wanted_.others, err = this->err()](const std::string& text) {
      others ? others->said(text) : launcher_says(*err, text);
    };
    const auto log = std::make_shared<RankLog>(wanted_.setup, state.number, say);
    const LineRelay::Listener others = listener(state.number, true);
    Descriptor err;
    state.err = relayed(err, this->err(), prefix_of(state.number), [=](const std::string& bytes) {
      log->write(bytes);
      if (others) others(bytes);
    });
    state.err->pass_errors_only();
    state.log = log->path();
    start.out = log->fd();
    return err;
  }

  RestartPoints::Listener points_listener() const {
    OtherHosts* const others = wanted_.others;
    if (!others) return {};
    return [=](const std::string& bytes) { others->restart_points(bytes); };
  }

  void start_one(int local, const ForRank0& own, RankState& state) const {
    const int rank = state.number;
    Descriptor out, err;
    RankStart start;
    if (wanted_.others) state.flight = HeldRecord::make();
    start.command = &wanted_.command;
    start.environment = environment_of(rank, local);
    if (wanted_.setup.has_logs()) {
      err = open_log(state, start);
    } else {
      if (!inherits_stdout(rank)) state.out = relayed(out, this->out(), prefix_of(rank), listener(rank, false));
      if (!inherits_stderr(rank)) state.err = relayed(err, this->err(), prefix_of(rank), listener(rank, true));
      start.out = state.out ? out.get() : this->out()->fd();
    }
    start.err = err.get();
    if (cores_) start.before = [this, local] { return cores_->bind_this_process(local); };
    start.inherited = {{"DRIVETRAIN_LISTEN_FD", own.listener.get()},
                       {"DRIVETRAIN_NEWS_FD", own.news.get()},
                       {"DRIVETRAIN_RESTART_POINTS_FD", own.restart_points.get()},
                       {"DRIVETRAIN_FLIGHT_FD", state.flight.fd()}};
    start.config = config_.file.get(), start.config_number = config_.number;
    start.signal_mask = mask_;
    state.pid = start_rank(start);
  }

  // Of this host, as its ranks have them.
  std::string visible_devices() const {
    const char* const own = std::getenv("CUDA_VISIBLE_DEVICES");
    std::string devices = own ? own : "";
    const std::string name = "CUDA_VISIBLE_DEVICES=";
    for (const std::string& entry : wanted_.environment)
      if (entry.starts_with(name)) devices = entry.substr(name.size());
    return devices;
  }

  std::vector<std::string> environment_of(int rank, int local) const {
    std::vector<std::string> list = wanted_.environment;
    const Place& place = wanted_.place;
    const bool alone = !place.has_others();
    for (const std::string& entry :
         {"RANK=" + std::to_string(rank), "LOCAL_RANK=" + std::to_string(place.local + local),
          "WORLD_SIZE=" + std::to_string(wanted_.count),
          "LOCAL_WORLD_SIZE=" + std::to_string(place.of_host > 0 ? place.of_host : here()),
          "MASTER_ADDR=" + (alone ? "127.0.0.1" : place.master_addr),
          "MASTER_PORT=" + std::to_string(alone ? port_ : place.master_port),
          "DRIVETRAIN_MASTER_LISTENS=" + std::string(alone || place.listens ? "1" : "")})
      list.push_back(entry);
    list.push_back(kLaunchId + ("=" + launch_id_));
    if (const std::string own = own_device(visible_devices(), place.local + local); !own.empty())
      list.push_back("CUDA_VISIBLE_DEVICES=" + own);
    if (cores_)
      for (const char* name : {"OMP_NUM_THREADS=", "DRIVETRAIN_BOUND_CORES="})
        list.push_back(name + std::to_string(cores_->of(local).cores));
    // Where others start the other ranks, one in the environment is theirs too; without one rank 0 shows its own.
    if (alone || !place.token.empty()) list.push_back("DRIVETRAIN_RUN_TOKEN=" + (alone ? token_ : place.token));
    return list;
  }

  const RanksToStart& wanted_;
  const ConfigDocument& config_;
  const sigset_t* const mask_;
  const std::string token_ = new_run_token();  // by environment: a command line can be read by everybody
  const std::string launch_id_ = new_launch_id();
  int port_ = 0;
  std::optional<CoreBinding> cores_;
};

}  // namespace

void start_ranks(const RanksToStart& wanted, const ConfigDocument& config, const sigset_t* signal_mask,
                 StartedRanks& started) {
  Starter(wanted, config, signal_mask).start(started);
}

}  // namespace drivetrain::program
