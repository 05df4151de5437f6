#include "launch/start_ranks.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/rank_variables.h"
#include "launch/core_binding.h"
#include "launch/rank_log.h"
#include "launch/visible_devices.h"

namespace drivetrain::program {
namespace {

// Its write end goes to the rank.
RankPipe pipe_of_rank(Descriptor& write_end, RankPipe::Listener listener) {
  Pipe pipe = new_pipe();
  write_end = std::move(pipe.to);
  do_not_wait_at(pipe.from);
  return {std::move(pipe.from), std::move(listener)};
}

// What rank 0 alone gets.
struct ForRank0 {
  Descriptor listener, news, restart_points;
};

class Starter {
 public:
  Starter(const StartOrder& order, const ConfigDocument& config, const sigset_t* mask, LauncherChannel& launcher)
      : order_(order), config_(config), mask_(mask), launcher_(launcher) {}

  void start(Descriptor listener, std::vector<RankState>& ranks, StartedRanks& started) {
    ForRank0 own;
    if (order_.first == 0) own = prepare(std::move(listener), started);
    if (order_.setup.bind_cores)
      cores_.emplace(order_.setup.core_list, static_cast<int>(order_.slots.size()), visible_devices());
    started.guardian = std::make_unique<Guardian>(launch_id_, order_.may_stand_s);
    for (size_t local = 0; local < ranks.size(); ++local) {
      start_one(static_cast<int>(local), own, ranks[local]);
      own = ForRank0();  // if rank 0 dies, others are refused at once instead of waiting
    }
  }

 private:
  static ForRank0 prepare(Descriptor listener, StartedRanks& started) {
    ForRank0 own;
    own.listener = std::move(listener);
    Pipe news = new_pipe(), points = new_pipe();
    own.news = std::move(news.from), started.news = std::move(news.to);
    own.restart_points = std::move(points.to), started.restart_points = std::move(points.from);
    do_not_wait_at(started.news);  // a stopped rank 0 reads nothing
    do_not_wait_at(started.restart_points);
    do_not_wait_at(own.restart_points);  // nor does a stopped launcher
    return own;
  }

  RankPipe::Listener to_launcher(Message::Type type, int rank) const {
    return [type, rank, launcher = &launcher_](const std::string& bytes) { launcher->send({type, rank, bytes}); };
  }

  // To the log, and what is an error or a last word also to the launcher.
  Descriptor open_log(RankState& state, ProcessStart& start) const {
    const auto log = std::make_shared<RankLog>(
        order_.setup, state.number, [launcher = &launcher_](const std::string& text) { launcher->say(text); });
    Descriptor err;
    state.err = pipe_of_rank(err, [log, pass = to_launcher(Message::err, state.number)](const std::string& bytes) {
      log->write(bytes);
      pass(bytes);
    });
    start.out = log->fd();
    return err;
  }

  void start_one(int local, const ForRank0& own, RankState& state) const {
    const int rank = state.number;
    Descriptor out, err;
    ProcessStart start;
    if (order_.keeps_flight_records) state.flight = HeldRecord::make();
    start.command = &order_.command;
    if (order_.setup.has_logs()) {
      err = open_log(state, start), start.err = err.get();
    } else {
      if (rank == 0) start.out = order_.rank_0_out, start.err = order_.rank_0_err;
      if (start.out < 0) state.out = pipe_of_rank(out, to_launcher(Message::out, rank)), start.out = out.get();
      if (start.err < 0) state.err = pipe_of_rank(err, to_launcher(Message::err, rank)), start.err = err.get();
    }
    if (cores_) start.before = [this, local] { return cores_->bind_this_process(local); };
    const RankStart told = told_to(rank, local, own, state);
    start.environment = environment_of(told);
    for (const auto& [variable, descriptor] : told.descriptors()) start.inherited.push_back({variable, descriptor});
    start.config = config_.file.get(), start.config_number = config_.number;
    start.signal_mask = mask_;
    state.pid = start_process(start);
  }

  // Of this host, as its ranks have them.
  std::string visible_devices() const {
    const char* const own = std::getenv("CUDA_VISIBLE_DEVICES");
    const std::string chosen = devices_of_slots(order_.slots, own);
    return !chosen.empty() ? chosen : own ? own : "";
  }

  RankStart told_to(int rank, int local, const ForRank0& own, const RankState& state) const {
    RankStart told;
    told.rank = rank, told.world_size = order_.world;
    told.local_rank = std::max(0, order_.local) + local, told.local_size = static_cast<int64_t>(order_.slots.size());
    told.master_addr = order_.master_addr, told.master_port = order_.master_port;
    told.master_listens = order_.master_listens;
    told.token = order_.token;
    told.launch_id = launch_id_;
    told.begun_folder = order_.begun_folder;
    if (cores_) told.bound_cores = cores_->of(local).cores;
    told.listen_fd = own.listener.get(), told.news_fd = own.news.get();
    told.restart_points_fd = own.restart_points.get(), told.flight_fd = state.flight.fd();
    return told;
  }

  std::vector<std::string> environment_of(const RankStart& told) const {
    std::vector<std::string> list = order_.environment;
    for (const std::string& entry : told.write()) list.push_back(entry);
    const std::string devices = visible_devices();
    const std::string own = own_device(devices, static_cast<int>(told.local_rank));
    if (!devices.empty()) list.push_back("CUDA_VISIBLE_DEVICES=" + (own.empty() ? devices : own));
    if (cores_) list.push_back("OMP_NUM_THREADS=" + std::to_string(told.bound_cores));
    return list;
  }

  const StartOrder& order_;
  const ConfigDocument& config_;
  const sigset_t* const mask_;
  LauncherChannel& launcher_;
  const std::string launch_id_ = new_launch_id();
  std::optional<CoreBinding> cores_;
};

}  // namespace

void start_ranks(const StartOrder& order, const ConfigDocument& config, Descriptor listener,
                 const sigset_t* signal_mask, LauncherChannel& launcher, std::vector<RankState>& ranks,
                 StartedRanks& started) {
  Starter(order, config, signal_mask, launcher).start(std::move(listener), ranks, started);
}

}  // namespace drivetrain::program
