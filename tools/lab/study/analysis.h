// What the runs of a study say: figures of each cell, differences to the reference, effects of factors. Speed is TGS,
// the tokens of a step (padded ones) per rank and second, so that cells of other batches and worlds can be compared.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "study/records.h"
#include "study/statistics.h"

namespace drivetrain::study {

// Parts of a step as step_times.json names them, in their order. "agree" is what is left of the gradients' sums, their
// norm and the exchange of figures; "begin" is what comes before the first instruction.
inline constexpr const char* kPartOrder[] = {"begin",           "load",  "forward", "receive", "send", "backward",
                                             "backward_weight", "agree", "update"};

enum class Verdict { untested, no_difference, faster, slower };
enum class Gate { off, not_comparable, passed, failed };

// Against the reference, block by block, of the logarithm of the speed: `change` 0.03 is 3 % faster.
struct Comparison {
  int n = 0;  // blocks that both have
  double change = 0;
  double sd = 0;                                                     // of the blocks' logarithms; 0: too few
  std::optional<Interval> interval;                                  // 95 %
  std::optional<double> paired, welch, mann_whitney;                 // two-sided p-values
  std::optional<double> paired_holm, welch_holm, mann_whitney_holm;  // corrected over all cells of the study
  Verdict verdict = Verdict::untested;                               // by the paired test, corrected, at 5 %
};

struct CellResult {
  const CellRecord* cell = nullptr;
  State state = State::skipped;  // ok if any run was; else that of the last run
  int ok = 0;
  bool begun = false;           // any run has ended
  std::string reason;           // of the last run that was not ok
  std::vector<double> tgs;      // one per ok run, by its figure (Warmup)
  std::vector<int64_t> blocks;  // of those
  Summary speed, step_s;        // over runs, by their figures
  std::vector<double> steps;    // of the windows of all runs, seconds
  double step_p10 = 0, step_median = 0, step_p90 = 0,
         first_five_s = 0;  // over these; the mean of each run's first five
  double tgs_real = 0, tgs_loss = 0, samples_per_s = 0, startup_s = 0, wall_s = 0;
  bool never_steady = false;
  double peak_bytes = 0;  // of the largest rank's process, or its states where no process was measured
  std::map<std::string, double> part_shares;  // of a step: mean over runs and ranks; empty: nothing was measured
  double communication_share = 0, communication_share_most = 0;  // in the parts; of the rank with most
  std::optional<double> energy_j, joules_per_1k_tokens;          // of a whole run; of its steps after the first
  std::vector<Convention> tflops;
  std::optional<double> mfu, hfu;
  Gate gate = Gate::off;
  double loss_difference = 0;  // the largest relative one
  int64_t loss_step = 0;       // where it is
  bool is_pareto = false;
  Comparison against;   // the reference
  double standing = 0;  // the speed that places go by: the mean or, with `trim`, the reference's with the change on it
};

struct Effect {
  std::string what;      // "zero 2 instead of 0", or "zero 2 with recompute full"
  int pairs = 0, n = 0;  // matched cells (0 in a fraction, which has none), blocks
  double change = 0;
  std::optional<Interval> interval;
  std::optional<double> p, p_holm;
  std::vector<std::string>
      aliases{};  // in a fraction: what it cannot be told from, with how much of it is in it, "zero x recompute (0.5)"
};

// How small a difference the study can show, by the repeats of its A/A pair.
struct Sensitivity {
  double sd = 0;                        // of the pair's differences of logarithms
  int n = 0;                            // of its repeats
  double level = 0;                     // 5 %, divided over the comparisons as Holm's correction does at worst
  double trim = 0;                      // as in the study's comparisons
  int64_t needed(double change) const;  // repeats for a change of 0.03: 3 %
  double shown() const;                 // by the repeats that there are
  // The same where the pair's true deviation is as large as it is in four of five cases at most. A study that ends by
  // its own repeats asks this: the guess `sd` is too small now and then, and that is where such a study would end.
  double surely_shown() const;
};

struct Analysis {
  std::vector<CellResult> cells;  // in the order of the study
  std::vector<size_t> ranking;    // ok and not gated, the fastest first, without the noise cell
  std::vector<Effect> effects, interactions;
  std::vector<std::string> refused_effects;  // in a fraction: those that its cells cannot tell, with the reason
  std::optional<double> noise_floor;         // the largest difference that the interval of the A/A pair holds
  std::optional<Sensitivity> sensitivity;
};

// `study` outlives the result.
Analysis analysis_of(const StudyRecord& study);

// Paired comparison of two lists of speeds of the same blocks, and of all of them; without corrections.
Comparison compared(const std::vector<double>& tgs, const std::vector<int64_t>& blocks, const std::vector<double>& base,
                    const std::vector<int64_t>& base_blocks, double trim = 0);
// Fills in the corrected p-values and verdicts of all comparisons together.
void correct(const std::vector<Comparison*>& comparisons);

// effects.cpp
std::vector<Effect> main_effects(const std::vector<CellResult>& cells, double trim = 0);
std::vector<Effect> interactions_of(const std::vector<CellResult>& cells, double trim = 0);

}  // namespace drivetrain::study
