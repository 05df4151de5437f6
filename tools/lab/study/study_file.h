// What a study file says, checked as far as it can be without the program's plugins.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "study/outcome.h"

namespace drivetrain::study {

// One key of a config, or of the launch: `world_size`, `hosts`, `environment.NAME`. No value: the key is absent.
struct Change {
  std::string key;
  std::optional<Value> value;
};

struct Level {
  std::string name;  // as it is shown, and as rows and constraints call it
  std::vector<Change> changes;
};

struct Factor {
  std::string name;
  std::vector<Level> levels;  // the first one is the reference's, unless the study says another
};

// A row names levels by factor, and may change further keys.
struct Row {
  std::string id;           // "": made of what it changes
  std::vector<int> levels;  // by factor; -1: the reference's
  std::vector<Change> changes;
};

enum class Cross { none, full, fractional, one_at_a_time };
enum class Keep { nothing, tokens_per_rank, global_batch };

// Where every condition of `if_levels` holds, every one of `then_levels` has to; without them: the cell is left out.
struct Constraint {
  struct Condition {
    size_t factor;
    std::vector<int> levels;
  };
  std::vector<Condition> if_levels, then_levels;
};

// Which steps are measured.
struct Warmup {
  int64_t first = 3;       // so many steps are left out
  bool steady = false;     // or: until a window's median is near that of the second half
  int64_t window = 5;      // steps
  double tolerance = 0.1;  // relative
  int64_t only_first = 0;  // above 0: measured are the first so many steps and no others, by their mean
  double quantile = 0.5;   // of the measured steps: a run's figure
};

// How often every cell runs: `most` times, or until the study would show a difference of `until`.
struct Repeats {
  int64_t most = 3, least = 6;
  double until = 0;  // 0.03: 3 %; 0: always `most`
};

// Tasks of an array job. `options`: of sbatch, beside the study's own.
struct Slurm {
  std::vector<std::string> options;
  int64_t at_once = 0;  // tasks at a time; 0: as many as SLURM starts
};

// Runs side by side: on this host, in so many slots of equal size or in those that are listed; on hosts that are
// listed; or on the hosts of a cluster.
struct Dispatch {
  struct Listed {
    std::string cores, devices;  // "0-3"; "0,1" or ""
    std::string hosts;           // a hostfile, and neither of these
  };
  int64_t slots = 1;
  std::vector<Listed> listed;
  bool is_of_hosts() const { return !listed.empty() && !listed.front().hosts.empty(); }
  bool is_slurm = false;
  Slurm slurm;
};

// Cells that are shown to be worse than the best one run no further repeats.
struct EarlyStop {
  int64_t after = 0;    // repeats, before the first look; 0: none stops
  double level = 0.05;  // the chance that the best cell is ever stopped, at most
};

struct StudyFile {
  std::string path, name;
  Value text;  // all of it, for the ledger
  std::string base_path;
  Value base;               // an object that stands in the study itself; null: there is a path
  std::vector<Change> set;  // for every cell
  std::vector<Factor> factors;
  std::vector<Row> rows;
  Cross cross = Cross::none;
  int64_t fraction = 2;  // 1 of so many cells
  std::vector<Constraint> constraints;
  std::vector<int> reference;  // a level per factor
  Repeats repeats;
  Warmup warmup;
  Dispatch dispatch;
  EarlyStop early_stop;
  double budget_s = 0;  // 0: none
  uint64_t seed = 1;
  Keep keep = Keep::nothing;
  double timeout_s = 600;                // of one cell
  int64_t world_size = 0;                // 0: the slots of `hosts`, or 1
  std::string hosts;                     // a hostfile, of which all slots are used
  std::vector<std::string> environment;  // NAME=VALUE
  std::string output_dir;
  double gate = 1e-3;             // largest relative difference of a loss; 0: losses are not compared
  std::vector<Outcome> outcomes;  // none: cells are compared by speed
  bool seed_per_repeat = false;   // repeat n runs with the seed `seed` + n, the same in every cell
  double trim = 0;                // of the blocks' differences, at each end, that a comparison sets aside
  double peak_tflops = 0;         // of one rank; 0: no MFU
  std::string hardware;           // a file, or the name of one, for planned times; "": none
  double allow_load = 0;          // share of the host's CPU time that others may take during a run; 0: any
  int64_t memory_limit = 0;       // bytes of address space per process; 0: none
  bool noise_cell = true;         // the reference a second time in every block
};

// A file that the study in `path` names: relative to it.
std::string beside(const std::string& path, const std::string& file);

// Reads and checks a study file. Throws Error(config) with place and remedy.
StudyFile read_study(const std::string& path);

}  // namespace drivetrain::study
