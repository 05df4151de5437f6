// What `drivetrain launch` tells each of its ranks by variables of the environment: the whole protocol between the two.
// The launcher writes it (tools/launch/start_ranks.cpp), the rank reads it. No LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "internal.h"

namespace drivetrain {

struct RankStart {
  static constexpr const char* kToken = "DRIVETRAIN_RUN_TOKEN";
  static constexpr const char* kLaunchId = "DRIVETRAIN_LAUNCH_ID";
  static constexpr const char* kBegunFolder = "DRIVETRAIN_BEGUN_FOLDER";
  static constexpr const char* kConfigCopy = "DRIVETRAIN_CONFIG_COPY";
  static constexpr const char* kConfigFolder = "DRIVETRAIN_CONFIG_FOLDER";

  // RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT. `read` leaves them alone: a rank reads them
  // beside those of other launchers (rendezvous/rank_environment.cpp).
  int64_t rank = 0, world_size = 1, local_rank = 0, local_size = 1;
  std::string master_addr = {};
  int64_t master_port = 0;

  // DRIVETRAIN_MASTER_LISTENS: rank 0's socket listens there before any rank starts. Nothing: `drivetrain launch` has
  // not started this process.
  std::optional<bool> master_listens = {};
  std::string token = {};      // DRIVETRAIN_RUN_TOKEN: the run's secret
  std::string launch_id = {};  // DRIVETRAIN_LAUNCH_ID: a mark of all processes of this start
  std::string begun_folder =
      {};                   // DRIVETRAIN_BEGUN_FOLDER: of the run, which has no checkpoint yet and may begin again
  int64_t bound_cores = 0;  // DRIVETRAIN_BOUND_CORES: that this process is bound to; 0: none of its own
  // DRIVETRAIN_CONFIG_COPY, DRIVETRAIN_CONFIG_FOLDER: a config that the launcher has brought to this host, and the
  // folder in which its relative paths begin.
  std::string config_copy = {}, config_folder = {};

  // Descriptors that the rank inherits; -1: none.
  int listen_fd = -1;          // DRIVETRAIN_LISTEN_FD, of rank 0: listens on MASTER_PORT
  int news_fd = -1;            // DRIVETRAIN_NEWS_FD, of rank 0: brings a line for each rank that has ended
  int restart_points_fd = -1;  // DRIVETRAIN_RESTART_POINTS_FD, of rank 0: takes what tools/launch/restart_point.h says
  int flight_fd = -1;          // DRIVETRAIN_FLIGHT_FD: memory for the flight record

  // NAME=VALUE for each that is set, but for descriptors, whose numbers are known when the rank is forked.
  DRIVETRAIN_INTERNAL std::vector<std::string> write() const;
  DRIVETRAIN_INTERNAL std::vector<std::pair<const char*, int>> descriptors() const;
  // `lookup`: the value of an environment variable, or null. Throws Error(config), which names the variable and its
  // value. The second form: of this process, where the secret may have been taken out (read_rank_environment).
  DRIVETRAIN_INTERNAL static RankStart read(const std::function<const char*(const char* name)>& lookup);
  DRIVETRAIN_INTERNAL static RankStart read();
  // All of the variables: what `launch` gives each rank, nobody else may.
  static std::vector<const char*> names();
};

// For the one that takes over such a descriptor of this process, whose children do not get it. Throws Error(config)
// where it is not open. -1: there is none.
DRIVETRAIN_INTERNAL int taken_over(int descriptor);

}  // namespace drivetrain
