// A study as its ledger tells it: what reports, comparisons and resumed studies are made from.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "study/flops.h"
#include "study/host_load.h"
#include "study/ledger.h"
#include "study/study_file.h"

namespace drivetrain::study {

struct RunRecord {
  std::string id, folder, began, ended;  // times of day, "2026-11-23T22:10:05Z"; began: "" if it never did
  int64_t block = 0;
  State state = State::skipped;
  std::string reason;
  Value end;  // the ledger's line
  double wall_s = 0, startup_s = 0;
  std::vector<double> step_s, loss, tokens, padding;    // by step
  std::map<std::string, Series> figures;                // of evaluations, and what the study asks for
  std::optional<int64_t> seed;                          // where the study gave it one
  std::optional<HostLoad> load;                         // of the host, where it was measured
  int64_t slot = 0;                                     // from 1; 0: it had the host to itself
  std::string cores, hosts;                             // of its slot: one of them, or none
  std::vector<std::pair<std::string, int64_t>> beside;  // cell and block of runs that overlapped with it
};

// Why a cell runs no further repeats.
struct EarlyEnd {
  int64_t repeats = 0;  // that it has; 0: it did not stop
  std::string rival;    // the cell that it cannot win against
  double change = 0, p = 0;
  bool is_ratio = true;
  int64_t looked_at = 0;  // repeats that it had when it stopped, where a merged study has further ones; 0: all of them
};

struct CellRecord {
  std::string id;
  std::vector<std::pair<std::string, std::string>> levels;  // factor, level
  bool is_reference = false, is_noise = false;
  int64_t world_size = 1, batch = 0, seq_length = 0;
  double planned_bytes = 0;
  ModelShape shape;
  double model_flops = 0;  // per token
  bool recomputes = false;
  double recomputed_fraction = 0;  // of the layers; below 0: it cannot be told
  std::string refusal, reproduce;
  std::vector<std::string> sets;  // KEY=VALUE that its launch adds to the base
  std::vector<RunRecord> runs;    // the last of each block
  EarlyEnd stopped;
  std::vector<RunRecord> disturbed;  // under a load that the study does not allow; they are in no figure
};

struct StudyRecord {
  std::string folder, name, build, began;
  Value study, environment;
  Warmup warmup;
  double gate = 0, peak_tflops = 0, trim = 0, allow_load = 0;
  std::vector<Outcome> outcomes;  // none: speed
  int64_t repeats = 0;            // of every cell; with `until` at most
  double until = 0;               // repeats until this difference would be shown; 0: all of them
  int64_t enough = 0;             // the study ended by itself after so many of them; 0: it did not
  double stop_level = 0;          // of "early_stop"; 0: no cell stops
  std::string aliasing;
  std::vector<CellRecord> cells;
};

// Throws Error(io) where a line lacks what it should have.
StudyRecord records_of(const std::vector<Value>& lines, const std::string& folder);

// Goes by other figures than those that its file asks for, from the runs' folders where the ledger does not have them.
void choose_outcomes(StudyRecord& study, const std::vector<Outcome>& outcomes);

// Compares all cells with another one. Throws Error(config) if there is no such cell.
void choose_reference(StudyRecord& study, const std::string& cell);

// The reference's run has all outcomes, or no cell can be compared with it: throws Error(config), with the ledger as it
// is. A value that is not finite is the report's to tell. `end`: that run's line.
void check_has_outcomes(const Value& end, const std::vector<Outcome>& outcomes, const std::string& path);

// What stands in the ledger about a cell.
struct Cell;
struct CellPlan;
Value cell_line(const Cell& cell, const CellPlan& plan, const StudyFile& study, const std::string& reproduce);

}  // namespace drivetrain::study
