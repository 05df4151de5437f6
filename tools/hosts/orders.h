// What the launcher asks an agent, as the fields of its messages.
#pragma once

#include <string>
#include <vector>

#include "launch/rank_setup.h"

namespace drivetrain::program {

// Message::prepare: is this host good to run, and, of the one with rank 0, where is it met.
struct PrepareOrder {
  std::string folder, config, program;  // at the same paths on every host; config: "" if none is read there
  bool has_rank_0 = false;
  std::string master_addr;
  int master_port = 0;
  std::vector<std::string> peers = {};        // addresses of the other hosts
  std::vector<int> slots = {};                // of this host, a rank each
  std::string run_folder = {};                // that the run goes on in; "": any
  std::vector<std::string> files = {};        // beside the config, that have to be there
  bool is_again = false;                      // slots may have been left out since the user chose them
  std::vector<std::string> environment = {};  // as in StartOrder
  RankSetup setup = {};

  std::string text() const;
  static PrepareOrder of(const std::string& text);
};

// Message::start.
struct StartOrder {
  int first = 0, world = 1;
  std::vector<int> slots = {};  // of this host, a rank each
  int local = -1;               // the agent is for the rank of this one of the slots; -1: for all of them
  bool only_rank_0 = false;
  std::string master_addr;
  int master_port = 0;
  std::string token;
  double peers_may_take_s = 10, sigterm_may_take_s = 5;
  bool signals_reach_ranks = false;  // as in RanksToStart
  std::vector<std::string> environment = {}, command = {};
  RankSetup setup = {};

  std::string text() const;
  static StartOrder of(const std::string& text);
};

// Message::examine: run this command and tell how it ended.
struct ExamineOrder {
  std::string folder;
  double may_take_s = 0;
  std::vector<std::string> environment = {}, command = {};

  std::string text() const;
  static ExamineOrder of(const std::string& text);
};

}  // namespace drivetrain::program
