// A rank as the launcher sees it.
#pragma once

#include <limits>
#include <memory>
#include <string>

#include "launch/activity.h"
#include "launch/held_record.h"
#include "launch/line_relay.h"

namespace drivetrain::program {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr const char* kSaidError = "did not end after its error";  // a fault

struct RankState {
  int number = 0;    // its RANK
  std::string host;  // where it runs, if the run has several hosts; else ""
  pid_t pid = -1;
  bool ended = false;
  std::unique_ptr<LineRelay> out;  // null: inherited
  std::unique_ptr<LineRelay> err;  // null: a terminal, inherited by rank 0
  HeldRecord flight;               // where an agent has started it
  std::string log;                 // the file that all it writes goes to; "": there is none
  int stop_signal = 0;             // that stopped it, while it stands
  double alone_since = 0;          // of one that is stopped: since when no other goes on
  Stillness stillness;
  FileWork files;
  std::string fault;  // it is being ended for that
  double kill_at = kNever;

  bool running() const { return pid > 0 && !ended; }
  bool said_error() const { return err && !err->error().empty(); }  // its last word, though it may yet hang in its end
  bool goes_on() const { return running() && stop_signal == 0 && !said_error(); }
  std::string error() const { return err ? err->error() : ""; }
  // "rank 3", "rank 3 on host b"
  std::string name() const { return "rank " + std::to_string(number) + (host.empty() ? "" : " on host " + host); }
  void pass_error() const {
    if (err) err->pass_error();
  }
};

}  // namespace drivetrain::program
