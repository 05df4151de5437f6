#include "study/compare_figures.h"

#include <algorithm>
#include <map>
#include <set>

#include <drivetrain/error.h>

#include "study/report.h"

namespace drivetrain::study {
namespace {

// One figure of a cell: a value per run that has it, with the run's seed.
struct Values {
  std::vector<double> values;
  std::vector<int64_t> seeds;  // empty: some run was not given one
  std::string missing;         // why runs lack it
  int lacking = 0;
};

Values seeded_values(const CellResult& cell, const std::vector<double>& values, const std::vector<int64_t>& blocks) {
  Values result{values, {}, "", 0};
  std::map<int64_t, int64_t> seeds;
  for (const RunRecord& run : cell.cell->runs)
    if (run.seed) seeds[run.block] = *run.seed;
  for (const int64_t block : blocks)
    if (const auto seed = seeds.find(block); seed != seeds.end()) result.seeds.push_back(seed->second);
  const std::set<int64_t> different(result.seeds.begin(), result.seeds.end());
  if (different.size() != values.size()) result.seeds.clear();
  return result;
}

// `outcome` below 0: the speed.
Values figure_in(const CellResult& cell, int outcome) {
  if (outcome < 0) return {cell.tgs, {}, "", 0};
  const OutcomeResult& own = cell.outcomes[static_cast<size_t>(outcome)];
  Values result = seeded_values(cell, own.values, own.blocks);
  result.missing = own.why_not, result.lacking = own.missing;
  return result;
}

size_t shared_seeds(const Values& a, const Values& b) {
  return static_cast<size_t>(std::count_if(a.seeds.begin(), a.seeds.end(), [&](int64_t seed) {
    return std::find(b.seeds.begin(), b.seeds.end(), seed) != b.seeds.end();
  }));
}

std::vector<double> scaled(const std::vector<double>& values, Scale scale) {
  std::vector<double> list;
  for (const double value : values) list.push_back(on_scale(value, scale));
  return list;
}

void compare_unpaired(const Values& a, const Values& b, Scale scale, FigurePair& pair) {
  Comparison& c = pair.comparison;
  const Unpaired unpaired = unpaired_of(scaled(b.values, scale), scaled(a.values, scale));
  c.scale = scale, c.n = std::min(pair.n_a, pair.n_b), c.mean = unpaired.mean, c.degrees = unpaired.degrees;
  c.change = change_of(unpaired.mean, scale), c.paired = unpaired.p;
  if (unpaired.confidence)
    c.interval = Interval{change_of(unpaired.confidence->low, scale), change_of(unpaired.confidence->high, scale)};
}

// What keeps a figure of this cell from being compared.
std::string why_none(const char* study, const CellResult& cell, const Values& values) {
  if (!values.values.empty()) return "";
  return std::string(study) + ": " + (cell.ok == 0 ? state_text(cell) : values.missing);
}

std::string lacking_note(const char* study, const CellResult& cell, const Values& values) {
  if (values.lacking == 0) return "";
  return concat(values.lacking, " of ", cell.ok, " runs of ", study, " left out: ", values.missing);
}

std::string both(const std::string& a, const std::string& b) { return a + (a.empty() || b.empty() ? "" : "; ") + b; }

FigurePair pair_of(const CellResult& a, const CellResult& b, int outcome, Scale scale) {
  FigurePair pair{&a, &b, "", ""};
  const Values in_a = figure_in(a, outcome), in_b = figure_in(b, outcome);
  pair.n_a = static_cast<int>(in_a.values.size()), pair.n_b = static_cast<int>(in_b.values.size());
  pair.why_not = both(why_none("A", a, in_a), why_none("B", b, in_b));
  if (!pair.why_not.empty()) return pair;
  pair.note = both(lacking_note("A", a, in_a), lacking_note("B", b, in_b));
  pair.mean_a = summary_of(in_a.values).mean, pair.mean_b = summary_of(in_b.values).mean;
  if (shared_seeds(in_a, in_b) >= 2)
    pair.by_seed = true, pair.comparison = compared(in_b.values, in_b.seeds, in_a.values, in_a.seeds, 0, scale);
  else
    compare_unpaired(in_a, in_b, scale, pair);
  pair.is_constant = std::min(pair.n_a, pair.n_b) >= 2 && !pair.comparison.paired;
  if (pair.is_constant) pair.comparison.interval.reset();
  return pair;
}

Scale scale_of_both(const Analysis& a, const Analysis& b, int outcome) {
  for (const Analysis* const side : {&a, &b})
    for (const CellResult& cell : side->cells)
      for (const double value : figure_in(cell, outcome).values)
        if (value <= 0) return Scale::difference;
  return Scale::ratio;
}

Figure figure_of(const Analysis& a, const Analysis& b, int outcome) {
  Figure figure;
  figure.is_speed = outcome < 0, figure.scale = scale_of_both(a, b, outcome);
  figure.name = figure.is_speed ? "TGS" : a.outcomes[static_cast<size_t>(outcome)].name();
  figure.higher = figure.is_speed || a.outcomes[static_cast<size_t>(outcome)].higher;
  for (const CellResult& one : a.cells)
    for (const CellResult& other : b.cells)
      if (one.cell->id == other.cell->id && !one.cell->is_noise)
        figure.pairs.push_back(pair_of(one, other, outcome, figure.scale));
  std::vector<Comparison*> comparisons;
  for (FigurePair& pair : figure.pairs)
    if (pair.why_not.empty()) comparisons.push_back(&pair.comparison);
  correct(comparisons, figure.higher);
  return figure;
}

}  // namespace

std::vector<Figure> compared_figures(const Analysis& a, const Analysis& b) {
  std::vector<Figure> figures;
  for (int outcome = 0; outcome < static_cast<int>(a.outcomes.size()); ++outcome)
    figures.push_back(figure_of(a, b, outcome));
  figures.push_back(figure_of(a, b, -1));
  return figures;
}

}  // namespace drivetrain::study
