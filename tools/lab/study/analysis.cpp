#include "study/analysis.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "study/effects.h"
#include "study/measure.h"

namespace drivetrain::study {
namespace {

constexpr double kLevel = 0.05;

std::vector<double> part_of(const std::vector<double>& values, const Window& window) {
  const auto at = [&](size_t i) { return values.begin() + static_cast<std::ptrdiff_t>(std::min(i, values.size())); };
  return {at(window.first), at(window.last)};
}

double sum_of(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

double mean_of(const std::vector<double>& values) {
  return values.empty() ? 0 : sum_of(values) / static_cast<double>(values.size());
}

// The window of one run, added to what the cell has.
struct Sums {
  std::vector<double> figures, steps, first_five, real_share, loss_share, startup, wall, energy, per_1k_tokens;
  std::vector<double> communication, communication_most;
  std::map<std::string, std::vector<double>> parts;
};

std::optional<double> number_in(const Value& line, const char* key) {
  const Value* const value = line.find(key);
  return value && value->is_number() ? std::optional(value->as_double()) : std::nullopt;
}

void add_shares(const Value& end, Sums& sums) {
  const Value* const parts = end.find("part_shares");
  if (!parts) return;
  for (const Value::Member& part : parts->members()) sums.parts[part.key].push_back(part.value.as_double());
  sums.communication.push_back(number_in(end, "communication_share").value_or(0));
  sums.communication_most.push_back(number_in(end, "communication_share_most").value_or(0));
}

void add_energy(const Value& end, double tokens_per_step, Sums& sums) {
  const auto all = number_in(end, "energy_j"), steps = number_in(end, "energy_steps"),
             of_steps = number_in(end, "steps_energy_j");
  if (all) sums.energy.push_back(*all);
  if (of_steps && steps && *steps > 0) sums.per_1k_tokens.push_back(1e3 * *of_steps / (*steps * tokens_per_step));
}

void add_run(const RunRecord& run, const StudyRecord& study, CellResult& result, Sums& sums) {
  const CellRecord& cell = *result.cell;
  const Window window = steady_window(run.step_s, study.warmup);
  const std::vector<double> steady = part_of(run.step_s, window);
  if (steady.empty()) return;
  const double tokens = static_cast<double>(cell.batch) * static_cast<double>(cell.seq_length);
  const double figure = run_figure(steady, study.warmup), count = static_cast<double>(steady.size());
  result.tgs.push_back(tokens / static_cast<double>(cell.world_size) / figure);
  result.blocks.push_back(run.block), result.never_steady |= window.never;
  sums.figures.push_back(figure), sums.steps.insert(sums.steps.end(), steady.begin(), steady.end());
  const size_t five = std::min<size_t>(5, run.step_s.size());
  sums.first_five.push_back(mean_of({run.step_s.begin(), run.step_s.begin() + static_cast<std::ptrdiff_t>(five)}));
  sums.real_share.push_back(1 - sum_of(part_of(run.padding, window)) / (tokens * count));
  sums.loss_share.push_back(sum_of(part_of(run.tokens, window)) / (tokens * count));
  sums.startup.push_back(run.startup_s), sums.wall.push_back(run.wall_s);
  result.peak_bytes = std::max(result.peak_bytes, peak_of(run));
  result.tensor_bytes = std::max(result.tensor_bytes, tensors_of(run));
  add_shares(run.end, sums), add_energy(run.end, tokens, sums);
}

void finish(const Sums& sums, const StudyRecord& study, CellResult& result) {
  if (result.tgs.empty()) return;
  const CellRecord& cell = *result.cell;
  result.speed = positive_summary_of(result.tgs), result.step_s = summary_of(sums.figures);
  result.steps = sums.steps;
  result.step_p10 = quantile_of(sums.steps, 0.1), result.step_median = median_of(sums.steps);
  result.step_p90 = quantile_of(sums.steps, 0.9);
  result.first_five_s = mean_of(sums.first_five);
  result.tgs_real = result.speed.mean * mean_of(sums.real_share);
  result.tgs_loss = result.speed.mean * mean_of(sums.loss_share);
  std::vector<double> samples;
  for (const double seconds : sums.figures) samples.push_back(static_cast<double>(cell.batch) / seconds);
  result.samples_per_s = positive_summary_of(samples);
  result.startup_s = mean_of(sums.startup), result.wall_s = mean_of(sums.wall);
  for (const auto& [part, shares] : sums.parts) result.part_shares[part] = mean_of(shares);
  result.communication_share = mean_of(sums.communication);
  result.communication_share_most = mean_of(sums.communication_most);
  if (!sums.energy.empty()) result.energy_j = mean_of(sums.energy);
  if (!sums.per_1k_tokens.empty()) result.joules_per_1k_tokens = mean_of(sums.per_1k_tokens);
  result.tflops = conventions(cell.shape, cell.recomputes);
  for (Convention& one : result.tflops) one.flops *= result.speed.mean / 1e12;
  if (study.peak_tflops <= 0) return;
  result.mfu = cell.model_flops * result.speed.mean / 1e12 / study.peak_tflops;
  if (cell.recomputed_fraction < 0) return;
  const double fraction = cell.recomputes ? cell.recomputed_fraction : 0;
  result.hfu = hardware_flops(cell.model_flops, cell.shape, fraction) * result.speed.mean / 1e12 / study.peak_tflops;
}

CellResult result_of(const CellRecord& cell, const StudyRecord& study) {
  CellResult result;
  result.cell = &cell;
  if (!cell.refusal.empty()) result.state = State::refused, result.reason = cell.refusal;
  Sums sums;
  for (const RunRecord& run : cell.runs) {
    result.begun = true;
    if (run.state == State::ok) {
      ++result.ok;
      add_run(run, study, result, sums);
    } else {
      result.state = run.state, result.reason = run.reason;
    }
  }
  if (result.ok > 0) result.state = State::ok;
  finish(sums, study, result);
  return result;
}

const RunRecord* ok_run(const CellRecord& cell, int64_t block) {
  for (const RunRecord& run : cell.runs)
    if (run.block == block && run.state == State::ok) return &run;
  return nullptr;
}

// Curves are those of the same work where a step has the same tokens; weights are drawn by the seed alone.
void judge_losses(const CellRecord& reference, double gate, CellResult& result) {
  if (gate <= 0 || result.ok == 0) return;
  const CellRecord& cell = *result.cell;
  result.gate = Gate::not_comparable;
  if (cell.batch != reference.batch || cell.seq_length != reference.seq_length) return;
  for (const RunRecord& run : cell.runs) {
    const RunRecord* base = run.state == State::ok ? ok_run(reference, run.block) : nullptr;
    if (!base) continue;
    if (result.gate == Gate::not_comparable) result.gate = Gate::passed;
    for (size_t i = 0; i < std::min(run.loss.size(), base->loss.size()); ++i) {
      const double difference = std::abs(run.loss[i] - base->loss[i]) / std::max(std::abs(base->loss[i]), 1e-12);
      if (!(difference > result.loss_difference)) continue;
      result.loss_difference = difference, result.loss_step = static_cast<int64_t>(i) + 1;
    }
  }
  if (result.loss_difference > gate) result.gate = Gate::failed;
}

bool is_ranked(const CellResult& result) {
  return result.ok > 0 && result.gate != Gate::failed && !result.cell->is_noise && !result.values().empty();
}

void mark_pareto(std::vector<CellResult>& cells, bool higher) {
  const auto better = [&](double a, double b) { return higher ? a > b : a < b; };
  for (CellResult& one : cells) {
    if (!is_ranked(one)) continue;
    one.is_pareto = std::none_of(cells.begin(), cells.end(), [&](const CellResult& other) {
      return is_ranked(other) && !better(one.standing, other.standing) && other.peak_bytes <= one.peak_bytes &&
             (better(other.standing, one.standing) || other.peak_bytes < one.peak_bytes);
    });
  }
}

// Corrects those that have a p-value, together.
void correct_one(const std::vector<Comparison*>& list, std::optional<double> Comparison::*from,
                 std::optional<double> Comparison::*to) {
  std::vector<double> p_values;
  for (const Comparison* one : list)
    if (one->*from) p_values.push_back(*(one->*from));
  const std::vector<double> corrected = holm(p_values);
  size_t next = 0;
  for (Comparison* one : list)
    if (one->*from) one->*to = corrected[next++];
}

// Squares of the pair's differences about zero: it has no true difference, so that its own mean is noise, too.
double squares_about_zero(const Comparison& pair) {
  return pair.sd * pair.sd * pair.degrees + (pair.degrees + 1) * pair.mean * pair.mean;
}

void add_noise(const Comparison& pair, Analysis& analysis) {
  analysis.noise_floor = std::max(std::abs(pair.interval->low), std::abs(pair.interval->high));
  analysis.noise = std::sqrt(squares_about_zero(pair) / (pair.degrees + 1));
  analysis.noise_alarm = pair.interval->low > 0 || pair.interval->high < 0;
}

// As where every repeat has the same seed and the outcome is of what was learned.
bool is_one_run(const Analysis& analysis) {
  bool any = false;
  for (const CellResult& cell : analysis.cells) {
    const std::vector<double>& values = cell.values();
    any |= values.size() > 1;
    for (const RunRecord& run : cell.cell->runs)
      if (run.seed != cell.cell->runs.front().seed) return false;
    if (std::any_of(values.begin(), values.end(), [&](double value) { return value != values.front(); })) return false;
  }
  return any && !analysis.outcomes.empty();
}

// What repeats that are one run seem to show.
void forget_chance(Analysis& analysis) {
  for (CellResult& cell : analysis.cells) {
    OutcomeResult& outcome = cell.outcomes.front();
    outcome.summary.confidence.reset();
    Comparison& c = outcome.against;
    c.interval.reset(), c.paired.reset(), c.paired_holm.reset();
    c.verdict = Verdict::untested;
  }
  for (std::vector<Effect>* const list : {&analysis.effects, &analysis.interactions})
    for (Effect& effect : *list) effect.interval.reset(), effect.p.reset(), effect.p_holm.reset();
  analysis.noise.reset(), analysis.noise_floor.reset();
  analysis.noise_alarm = false;
}

// The deviation is that of all pairs together: a single pair's is a poor guess where there are few repeats.
void add_sensitivity(double trim, Analysis& analysis) {
  Sensitivity all;
  double squares = 0, comparisons = 0;
  for (const CellResult& result : analysis.cells) {
    const Comparison& pair = result.compared();
    if (pair.degrees < 1) continue;
    ++comparisons, all.n = std::max(all.n, pair.n);
    all.degrees += pair.degrees + result.cell->is_noise;
    squares += result.cell->is_noise ? squares_about_zero(pair) : pair.sd * pair.sd * pair.degrees;
  }
  if (squares <= 0) return;
  all.sd = std::sqrt(squares / all.degrees), all.level = kLevel / comparisons, all.trim = trim;
  all.scale = analysis.scale;
  analysis.sensitivity = all;
}

void add_effects(const StudyRecord& study, Analysis& analysis) {
  if (study.aliasing.empty()) {
    analysis.effects = main_effects(analysis.cells, study.trim, analysis.scale),
    analysis.interactions = interactions_of(analysis.cells, study.trim, analysis.scale);
    return;
  }
  FractionEffects fraction = fraction_effects(analysis.cells, study.trim, analysis.scale);
  analysis.effects = std::move(fraction.effects), analysis.interactions = std::move(fraction.interactions);
  analysis.refused_effects = std::move(fraction.refused);
}

}  // namespace

double peak_of(const RunRecord& run) {
  const Value* const peaks = run.end.find("peak_memory");
  for (const char* key : {"device_peak_memory_bytes", "peak_memory_bytes", "states"})
    if (const Value* const value = peaks ? peaks->find(key) : nullptr) return value->as_double();
  return 0;
}

double tensors_of(const RunRecord& run) {
  const Value* const peaks = run.end.find("peak_memory");
  const Value* const value = peaks ? peaks->find("together") : nullptr;
  return value ? value->as_double() : 0;
}

int64_t Sensitivity::needed(double change) const {
  return pairs_needed(scale == Scale::ratio ? std::log1p(change) : change, sd, level, trim);
}

double Sensitivity::shown() const { return change_of(shown_by(n, sd, level, trim), scale); }

double Sensitivity::surely_shown() const { return change_of(shown_by(n, sd_at_most(sd, degrees), level, trim), scale); }

Comparison compared(const std::vector<double>& tgs, const std::vector<int64_t>& blocks, const std::vector<double>& base,
                    const std::vector<int64_t>& base_blocks, double trim, Scale scale) {
  Comparison result;
  std::vector<double> differences;
  for (size_t i = 0; i < tgs.size(); ++i)
    for (size_t j = 0; j < base.size(); ++j)
      if (blocks[i] == base_blocks[j]) differences.push_back(on_scale(tgs[i], scale) - on_scale(base[j], scale));
  const Paired paired = paired_of(differences, trim);
  result.n = paired.n, result.scale = scale, result.mean = paired.mean, result.sd = paired.sd;
  result.change = change_of(paired.mean, scale), result.degrees = paired.degrees;
  if (paired.confidence)
    result.interval = Interval{change_of(paired.confidence->low, scale), change_of(paired.confidence->high, scale)};
  result.paired = paired.p, result.welch = welch_t(tgs, base);
  if (tgs.size() > 1 && base.size() > 1) result.mann_whitney = mann_whitney(tgs, base);
  return result;
}

void correct(const std::vector<Comparison*>& comparisons, bool higher) {
  correct_one(comparisons, &Comparison::paired, &Comparison::paired_holm);
  correct_one(comparisons, &Comparison::welch, &Comparison::welch_holm);
  correct_one(comparisons, &Comparison::mann_whitney, &Comparison::mann_whitney_holm);
  for (Comparison* one : comparisons) {
    if (!one->paired_holm) continue;
    const bool shown = *one->paired_holm < kLevel;
    one->verdict = !shown ? Verdict::no_difference : (one->change > 0) == higher ? Verdict::better : Verdict::worse;
  }
}

bool is_higher_better(const Analysis& analysis) {
  return analysis.outcomes.empty() || analysis.outcomes.front().higher;
}

Analysis analysis_of(const StudyRecord& study) {
  Analysis analysis;
  for (const CellRecord& cell : study.cells) analysis.cells.push_back(result_of(cell, study));
  const auto reference = std::find_if(analysis.cells.begin(), analysis.cells.end(),
                                      [](const CellResult& result) { return result.cell->is_reference; });
  if (reference == analysis.cells.end()) return analysis;
  std::vector<Comparison*> comparisons;
  for (CellResult& result : analysis.cells) {
    judge_losses(*reference->cell, study.gate, result);
    if (result.cell->is_reference || result.ok == 0) continue;
    result.against = compared(result.tgs, result.blocks, reference->tgs, reference->blocks, study.trim);
    comparisons.push_back(&result.against);
  }
  correct(comparisons);
  add_outcomes(study, analysis);
  for (const CellResult& result : analysis.cells)
    if (result.cell->is_noise && result.compared().interval) add_noise(result.compared(), analysis);
  analysis.is_one_run = is_one_run(analysis);
  if (!analysis.is_one_run) add_sensitivity(study.trim, analysis);
  const double base = reference->summary().mean;
  for (CellResult& result : analysis.cells) {
    const Comparison& against = result.compared();
    result.standing = study.trim <= 0 || against.n == 0 ? result.summary().mean
                      : analysis.scale == Scale::ratio  ? base * (1 + against.change)
                                                        : base + against.change;
  }
  const bool higher = is_higher_better(analysis);
  mark_pareto(analysis.cells, higher);
  for (size_t i = 0; i < analysis.cells.size(); ++i)
    if (is_ranked(analysis.cells[i])) analysis.ranking.push_back(i);
  std::stable_sort(analysis.ranking.begin(), analysis.ranking.end(), [&](size_t a, size_t b) {
    const double one = analysis.cells[a].standing, other = analysis.cells[b].standing;
    return higher ? one > other : one < other;
  });
  add_effects(study, analysis);
  if (analysis.is_one_run) forget_chance(analysis);
  return analysis;
}

}  // namespace drivetrain::study
