// What the launcher asks an agent, as the fields of its messages.
#pragma once

#include <string>
#include <vector>

#include "launch/deadlines.h"
#include "launch/rank_setup.h"

namespace drivetrain::program {

// Message::prepare: is this host good to run, and, of the one with rank 0, where is it met.
struct PrepareOrder {
  std::string folder, config, program;  // that have to be at the same paths on every host; "": none has to be
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
  bool only_rank_0 = false;     // the others would do nothing
  std::string master_addr = {};
  int master_port = 0;
  bool master_listens = true;     // before any rank starts
  std::string token = {};         // of the run; "": that of the agent's environment, if there is one
  std::string begun_folder = {};  // of the run, which has no checkpoint yet
  Deadlines deadlines = {};
  // Who signals the agent signals its ranks, too, as a scheduler does to all processes of a job: what came here is not
  // passed on, and what the launcher passes on waits a moment for it, since a second signal kills.
  bool signals_reach_ranks = false;
  bool keeps_flight_records = false;  // in memory of the agent, to be sent
  double may_stand_s = 0;             // the agent may be stopped by a signal for so long; 0: for ever
  int rank_0_out = -1,
      rank_0_err = -1;  // descriptors of the agent's process that rank 0 writes to; -1: they are passed
  std::vector<std::string> environment = {}, command = {};
  RankSetup setup = {};

  int count() const { return only_rank_0 || local >= 0 ? 1 : static_cast<int>(slots.size()); }  // that are started
  bool has_several() const { return world > 1 && !only_rank_0; }                                // the run has

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
