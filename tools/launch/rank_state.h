// A rank as the agent of its host sees it.
#pragma once

#include <optional>
#include <string>

#include "launch/activity.h"
#include "launch/deadlines.h"
#include "launch/held_record.h"
#include "launch/rank_pipe.h"

namespace drivetrain::program {

constexpr const char* kSaidError = "did not end after its error";  // a fault

struct RankState {
  int number = 0;  // its RANK
  pid_t pid = -1;  // -1: it was not started
  bool ended = false;
  std::optional<RankPipe> out, err;  // none: what it writes goes elsewhere by itself
  HeldRecord flight;
  int stop_signal = 0;     // that stopped it, while it stands
  double alone_since = 0;  // of one that is stopped: since when no other goes on
  Stillness stillness;
  FileWork files;
  std::string fault;  // it is being ended for that
  double kill_at = kNever;

  bool running() const { return pid > 0 && !ended; }
  bool said_error() const { return err && err->said_error(); }  // its last word, though it may yet hang in its end
  bool goes_on() const { return running() && stop_signal == 0 && !said_error(); }
  std::string name() const { return "rank " + std::to_string(number); }
};

}  // namespace drivetrain::program
