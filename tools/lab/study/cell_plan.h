// What the program itself says of a cell before it runs: `train --plan --json`, or why it refuses.
#pragma once

#include <string>
#include <vector>

#include "study/design.h"
#include "study/questions.h"

namespace drivetrain::study {

struct CellPlan {
  std::string refusal;  // empty: it would run
  int64_t world_size = 1;
  std::string hosts;                     // a hostfile, of the study's or of its first slot
  bool names_hosts = false;              // the study or the cell does, whatever slots there are
  std::vector<std::string> environment;  // NAME=VALUE
  std::vector<std::string> sets;         // KEY=VALUE of --set
  std::vector<std::string> places;       // of these in the study's file: "factor \"lr\", level \"0.1\""
  bool wrong_key = false;                // the refusal is of a key that there is not, or that takes no such value
  Value plan, resolved;                  // null where it is refused, or where the plan came from a ledger
  std::string config;                    // hash of the resolved config and of what the launch adds
  double step_s = 0;                     // planned seconds of a step; 0: not known (cell_time.h)
  std::string no_time;                   // why there are none on the hardware that was given
  std::string too_large;                 // that it does not fit that hardware; "": it does, or none was given

  double planned_bytes() const;          // of a rank's device: states, activations, buffers
  int64_t batch(const char* key) const;  // "train_batch_size", "micro_batch_size", "accumulation"
  int64_t seq_length() const;
  int64_t steps() const;  // of a run
};

class Planner {
 public:
  // `base`: the config's path.
  Planner(const StudyFile& study, const Questions& questions, std::string base)
      : study_(study), questions_(questions), base_(std::move(base)) {}

  // Of all cells, the reference first, since `keep` needs its batch. Throws Error(config) if the reference is refused,
  // or if no cell with a level gets beyond that level's keys: they do not exist, or take no such values.
  std::vector<CellPlan> plan(const std::vector<Cell>& cells) const;

 private:
  CellPlan plan_one(const Cell& cell, const CellPlan* reference) const;
  void plan_others(const std::vector<Cell>& cells, std::vector<CellPlan>& plans) const;
  std::string place_of(const Cell& cell, const std::string& key) const;
  CellPlan launch_of(const Cell& cell) const;
  void set_ranks(CellPlan& plan) const;
  void keep(const Cell& cell, const CellPlan& reference, CellPlan& plan) const;
  void ask(CellPlan& plan) const;
  void check_levels(const std::vector<Cell>& cells, const std::vector<CellPlan>& plans) const;

  const StudyFile& study_;
  const Questions& questions_;
  const std::string base_;
};

// `drivetrain launch -n 2 base.json --set a=1`, as a shell takes it; `output`: the run's folder.
std::string reproduce_line(const CellPlan& plan, const std::string& base, const std::string& output);
std::vector<std::string> launch_command(const CellPlan& plan, const std::string& program, const std::string& base,
                                        const std::string& output);

// The launch of a cell as a ledger has it, and back.
Value launch_value(const CellPlan& plan);
CellPlan plan_of_launch(const Value& cell_line);

// One hash per content, in 32 digits.
std::string hash_of(const std::string& text);
// Of the program's own library and all plugins that are installed beside it.
std::string build_of(const std::string& program);

}  // namespace drivetrain::study
