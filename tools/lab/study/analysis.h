// What the runs of a study say: figures of each cell, differences to the reference, effects of factors. Speed is TGS,
// the tokens of a step (padded ones) per rank and second, so that cells of other batches and worlds can be compared.
// Places and effects go by the study's first outcome, and by speed where it has none.
#pragma once

#include <cmath>
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

enum class Verdict { untested, no_difference, better, worse };
enum class Gate { off, not_comparable, passed, failed };

// How figures are compared: by their ratio, as differences of logarithms, where all of them are above 0; else by their
// difference. A `change` is 0.03 for 3 % more, or the difference itself.
enum class Scale { ratio, difference };
inline double on_scale(double value, Scale scale) { return scale == Scale::ratio ? std::log(value) : value; }
inline double change_of(double difference, Scale scale) {
  return scale == Scale::ratio ? std::expm1(difference) : difference;
}

// Against the reference, block by block.
struct Comparison {
  int n = 0;  // blocks that both have
  Scale scale = Scale::ratio;
  double change = 0;
  double mean = 0, sd = 0, degrees = 0;  // of the blocks' differences on the scale; 0 degrees of freedom: too few
  std::optional<Interval> interval;      // 95 %
  std::optional<double> paired, welch, mann_whitney;                 // two-sided p-values
  std::optional<double> paired_holm, welch_holm, mann_whitney_holm;  // corrected over all cells of the study
  Verdict verdict = Verdict::untested;                               // by the paired test, corrected, at 5 %
};

// What a cell's runs have of one outcome.
struct OutcomeResult {
  std::vector<double> values;  // one per ok run that has it
  std::vector<int64_t> blocks;
  Summary summary;
  Comparison against;   // the reference
  int missing = 0;      // ok runs without it
  std::string why_not;  // of the last of these
};

struct CellResult {
  const CellRecord* cell = nullptr;
  State state = State::skipped;  // ok if any run was; else that of the last run
  int ok = 0;
  bool begun = false;                    // any run has ended
  std::string reason;                    // of the last run that was not ok
  std::vector<double> tgs;               // one per ok run, by its figure (Warmup)
  std::vector<int64_t> blocks;           // of those
  Summary speed, step_s, samples_per_s;  // over runs, by their figures
  std::vector<double> steps;             // of the windows of all runs, seconds
  double step_p10 = 0, step_median = 0, step_p90 = 0,
         first_five_s = 0;  // over these; the mean of each run's first five
  double tgs_real = 0, tgs_loss = 0, startup_s = 0, wall_s = 0;
  bool never_steady = false;
  double peak_bytes = 0;    // of the largest rank's process, or its states where no process was measured
  double tensor_bytes = 0;  // of it, what the run holds in tensors at most: without the program's own pages
  std::map<std::string, double> part_shares;  // of a step: mean over runs and ranks; empty: nothing was measured
  double communication_share = 0, communication_share_most = 0;  // in the parts; of the rank with most
  std::optional<double> energy_j, joules_per_1k_tokens;          // of a whole run; of its steps after the first
  std::vector<Convention> tflops;
  std::optional<double> mfu, hfu;
  Gate gate = Gate::off;
  double loss_difference = 0;  // the largest relative one
  int64_t loss_step = 0;       // where it is
  bool is_pareto = false;
  Comparison against;                   // the reference, by speed
  std::vector<OutcomeResult> outcomes;  // in the order of the study's
  double standing = 0;  // what places go by: the mean or, with `trim`, the reference's with the change on it

  // What places and effects go by: the study's first outcome, or the speed.
  const std::vector<double>& values() const { return outcomes.empty() ? tgs : outcomes.front().values; }
  const std::vector<int64_t>& value_blocks() const { return outcomes.empty() ? blocks : outcomes.front().blocks; }
  const Summary& summary() const { return outcomes.empty() ? speed : outcomes.front().summary; }
  const Comparison& compared() const { return outcomes.empty() ? against : outcomes.front().against; }
};

struct Effect {
  std::string what;      // "zero 2 instead of 0", or "zero 2 with recompute full"
  int pairs = 0, n = 0;  // matched cells (0 in a fraction, which has none), blocks
  Scale scale = Scale::ratio;
  double change = 0;
  std::optional<Interval> interval;
  std::optional<double> p, p_holm;
  std::vector<std::string>
      aliases{};  // in a fraction: what it cannot be told from, with how much of it is in it, "zero x recompute (0.5)"
};

// How small a difference the study can show with its repeats.
struct Sensitivity {
  double sd = 0;  // of a pair's differences of logarithms: of the A/A pair about zero and of all others about their
                  // own means, pooled
  double degrees = 0;  // of freedom of all of them
  int n = 0;           // repeats
  double level = 0;    // 5 %, divided over the comparisons as Holm's correction does at worst
  Scale scale = Scale::ratio;
  double trim = 0;                      // as in the study's comparisons
  int64_t needed(double change) const;  // repeats for a change of 0.03: 3 %
  double shown() const;                 // by the repeats that there are
  // The same where the true deviation is as large as it is in four of five cases at most. A study that ends by
  // its own repeats asks this: the guess `sd` is too small now and then, and that is where such a study would end.
  double surely_shown() const;
};

struct Analysis {
  std::vector<CellResult> cells;  // in the order of the study
  std::vector<size_t> ranking;    // ok and not gated, the best first, without the noise cell
  std::vector<Outcome> outcomes;  // with the points at which "equal" ones are compared
  Scale scale = Scale::ratio;     // of what places and effects go by
  std::vector<Effect> effects, interactions;
  std::vector<std::string> refused_effects;  // in a fraction: those that its cells cannot tell, with the reason
  std::optional<double> noise_floor;         // the largest difference that the interval of the A/A pair holds
  std::optional<double> noise;               // of the A/A pair from repeat to repeat: root mean square about zero
  bool noise_alarm = false;                  // that interval excludes zero
  bool is_one_run = false;                   // repeats of no cell differ in the outcome: they say nothing of chance
  std::optional<Sensitivity> sensitivity;
};

// `study` outlives the result.
Analysis analysis_of(const StudyRecord& study);

// Of the largest rank's process, or its states where no process was measured; 0: the run did not say.
double peak_of(const RunRecord& run);
// Of it, what the run held in tensors at most: without the program's own pages.
double tensors_of(const RunRecord& run);
// Paired comparison of two lists of speeds of the same blocks, and of all of them; without corrections.
Comparison compared(const std::vector<double>& tgs, const std::vector<int64_t>& blocks, const std::vector<double>& base,
                    const std::vector<int64_t>& base_blocks, double trim = 0, Scale scale = Scale::ratio);
// Fills in the corrected p-values and verdicts of all comparisons together. `higher`: is better.
void correct(const std::vector<Comparison*>& comparisons, bool higher = true);

// outcomes.cpp: fills in the outcomes of all cells, and their comparisons with the reference.
void add_outcomes(const StudyRecord& study, Analysis& analysis);
// Where "equal" outcomes are compared, if nothing has said it yet: the most that every run of these studies has reached
// that has the figure.
void fix_equal_points(const std::vector<const StudyRecord*>& studies, std::vector<Outcome>& outcomes);
// Places by the first outcome can be told: the reference has it.
bool is_higher_better(const Analysis& analysis);

// effects.cpp
std::vector<Effect> main_effects(const std::vector<CellResult>& cells, double trim = 0, Scale scale = Scale::ratio);
std::vector<Effect> interactions_of(const std::vector<CellResult>& cells, double trim = 0, Scale scale = Scale::ratio);

}  // namespace drivetrain::study
