// What a study says while it runs. On a terminal a few lines at its end are drawn again all the time: how far it is,
// the state of every cell, the run at hand. Elsewhere there are plain lines, one per run, and nothing is drawn.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "study/ledger.h"

namespace drivetrain::study {

class Progress {
 public:
  // Draws if `terminal`, the standard output's file descriptor, is one that can; -1: never.
  Progress(std::string name, int terminal);
  ~Progress();  // what is drawn goes
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void line(const std::string& text);  // stays

  // `runs`: of the whole study; `at_most`: it can end by itself before.
  void begin_study(size_t cells, int64_t runs, bool at_most = false);
  void ended(size_t cell, State state);        // also of runs that an earlier start has done
  void spare(int64_t runs) { runs_ -= runs; }  // that will not be
  void begin_run(const std::string& cell, int64_t block, size_t slot = 0);
  void end_run(double wall_s, size_t slot = 0);
  void tick(double now_s, int64_t step, size_t slot = 0);

  // "about 3 min 20 s", or "at most about", by the runs of this start; "" before the first one.
  std::string time_left() const;
  int64_t left() const { return runs_ - ended_; }

  // The lines as they would be drawn now.
  std::vector<std::string> lines(size_t width) const;

 private:
  struct CellState {
    int64_t ok = 0;
    State worst = State::ok;  // of its runs
  };
  void draw();
  void erase();
  std::string counts() const;
  std::string cells() const;

  const std::string name_;
  const int terminal_;
  std::vector<CellState> cells_;
  std::vector<int64_t> by_state_ = std::vector<int64_t>(7);
  int64_t runs_ = 0, ended_ = 0, timed_ = 0;
  bool at_most_ = false;
  double timed_s_ = 0;
  struct Now {
    std::string cell;
    int64_t block = 0, step = 0;
    double seconds = 0;
  };
  std::map<size_t, Now> now_;  // by slot
  size_t slots_ = 1;           // at most at work at a time
  size_t drawn_ = 0;           // lines
  std::chrono::steady_clock::time_point last_draw_;
};

std::string duration_text(double seconds);  // "45 s", "3 min 12 s", "2 h 05 min"

}  // namespace drivetrain::study
