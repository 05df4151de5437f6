// What the launcher of one host hears of the other hosts of its run and tells them (hosts/agent.cpp).
#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "launch/outcome.h"

namespace drivetrain::program {

class OtherHosts {
 public:
  virtual ~OtherHosts() = default;

  // What there is to wait for beside the ranks.
  virtual std::vector<pollfd> fds() const = 0;
  // False: what was sent has not been taken yet, so that ranks have to wait with what they write.
  virtual bool takes_output() const = 0;

  struct News {
    std::vector<RankEnd> ends = {};  // of ranks on other hosts
    std::vector<int> signals = {};   // for all ranks
    bool wants_flight_records = false;
    bool lost = false;  // nobody is there any more: the ranks have to end at once
  };
  // After each wait.
  virtual News news() = 0;

  virtual void output(int rank, bool is_error, const std::string& bytes) = 0;
  virtual void ended(const RankEnd& end) = 0;
  virtual void restart_points(const std::string& bytes) = 0;  // that rank 0 has written
  virtual void said(const std::string& text) = 0;
  virtual void flight_record(int rank, const std::string& bytes) = 0;
};

}  // namespace drivetrain::program
