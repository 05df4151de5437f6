// A rank as the launcher sees it: where it runs and what it wrote.
#pragma once

#include <optional>
#include <string>

#include "launch/line_relay.h"

namespace drivetrain::program {

struct RankLines {
  int number = 0;    // its RANK
  std::string host;  // where it runs, if the run has several hosts; else ""
  bool ended = false;
  std::optional<LineRelay> out, err;  // none: it writes to the launcher's own stream
  std::string log;                    // the file that all it writes goes to; "": there is none

  bool said_error() const { return err && !err->error().empty(); }
  std::string error() const { return err ? err->error() : ""; }
  // "rank 3", "rank 3 on host b"
  std::string name() const { return "rank " + std::to_string(number) + (host.empty() ? "" : " on host " + host); }
};

}  // namespace drivetrain::program
