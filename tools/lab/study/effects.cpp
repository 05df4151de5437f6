// Main effects and interactions of crossed factors. A main effect is the mean over all pairs of cells that differ in
// that factor alone; an interaction is how much the effect of one factor changes with another. Pairs where a cell did
// not run are left out, so a cell that is out of memory does not bend the others. One value per block is what the
// interval is made of, since the runs of a block share the moment they ran in.
#include <algorithm>
#include <cmath>
#include <map>

#include <drivetrain/error.h>

#include "study/effects.h"

namespace drivetrain::study {
namespace {

using Levels = std::vector<std::string>;

// Cells by their levels: what places go by, on its scale, by block.
class Grid {
 public:
  Grid(const std::vector<CellResult>& cells, Scale scale) {
    for (const CellResult& result : cells) {
      if (result.cell->is_noise) continue;
      Levels levels;
      for (const auto& [factor, level] : result.cell->levels) levels.push_back(level);
      if (names_.empty())
        for (const auto& [factor, level] : result.cell->levels) names_.push_back(factor);
      if (result.cell->is_reference) reference_ = levels;
      for (size_t f = 0; f < levels.size(); ++f) {
        if (order_.size() <= f) order_.resize(f + 1);
        if (std::find(order_[f].begin(), order_[f].end(), levels[f]) == order_[f].end()) order_[f].push_back(levels[f]);
      }
      if (result.ok == 0 || result.gate == Gate::failed || result.values().empty() || cells_.contains(levels)) continue;
      for (size_t i = 0; i < result.values().size(); ++i)
        cells_[levels][result.value_blocks()[i]] = on_scale(result.values()[i], scale);
    }
  }
  const std::vector<std::string>& factors() const { return names_; }
  const Levels& reference() const { return reference_; }
  const Levels& levels(size_t factor) const { return order_[factor]; }
  const std::map<Levels, std::map<int64_t, double>>& cells() const { return cells_; }

  // Differences to the cell with the other levels at these factors, alternating in sign, by block; false: one of the
  // cells, or one of their blocks, is missing.
  bool difference(const Levels& cell, const std::vector<std::pair<size_t, std::string>>& others, int64_t block,
                  double& sum) const {
    sum = 0;
    for (size_t mask = 0; mask < size_t{1} << others.size(); ++mask) {
      Levels levels = cell;
      double sign = 1;
      for (size_t i = 0; i < others.size(); ++i)
        if (mask >> i & 1) levels[others[i].first] = others[i].second, sign = -sign;
      const auto found = cells_.find(levels);
      if (found == cells_.end()) return false;
      const auto at = found->second.find(block);
      if (at == found->second.end()) return false;
      sum += sign * at->second;
    }
    return true;
  }

 private:
  std::vector<std::string> names_;
  std::vector<Levels> order_;
  Levels reference_;
  std::map<Levels, std::map<int64_t, double>> cells_;
};

// Of all cells that have `wanted`, against those that have `others` instead.
Effect effect_of(const Grid& grid, const std::vector<std::pair<size_t, std::string>>& wanted,
                 const std::vector<std::pair<size_t, std::string>>& others, double trim, Scale scale) {
  Effect effect;
  std::map<int64_t, std::pair<double, int>> blocks;
  for (const auto& [levels, runs] : grid.cells()) {
    if (!std::all_of(wanted.begin(), wanted.end(), [&](const auto& w) { return levels[w.first] == w.second; }))
      continue;
    bool any = false;
    for (const auto& [block, speed] : runs) {
      double difference = 0;
      if (!grid.difference(levels, others, block, difference)) continue;
      blocks[block].first += difference, ++blocks[block].second, any = true;
    }
    effect.pairs += any;
  }
  std::vector<double> means;
  for (const auto& [block, sum] : blocks) means.push_back(sum.first / sum.second);
  const int pairs = effect.pairs;
  effect = effect_of_blocks(means, trim, scale), effect.pairs = pairs;
  return effect;
}

}  // namespace

Effect effect_of_blocks(const std::vector<double>& differences, double trim, Scale scale) {
  Effect effect;
  const Paired paired = paired_of(differences, trim);
  effect.n = paired.n, effect.scale = scale, effect.change = change_of(paired.mean, scale), effect.p = paired.p;
  if (paired.confidence)
    effect.interval = Interval{change_of(paired.confidence->low, scale), change_of(paired.confidence->high, scale)};
  return effect;
}

std::string main_name(const std::string& factor, const std::string& level, const std::string& base) {
  return concat(factor, " ", level, " instead of ", base);
}

std::string interaction_name(const std::string& f, const std::string& level, const std::string& g,
                             const std::string& other) {
  return concat(f, " ", level, " together with ", g, " ", other);
}

void correct_effects(std::vector<Effect>& effects) {
  std::vector<double> p_values;
  for (const Effect& effect : effects)
    if (effect.p) p_values.push_back(*effect.p);
  const std::vector<double> corrected = holm(p_values);
  size_t next = 0;
  for (Effect& effect : effects)
    if (effect.p) effect.p_holm = corrected[next++];
}

std::vector<Effect> main_effects(const std::vector<CellResult>& cells, double trim, Scale scale) {
  const Grid grid(cells, scale);
  std::vector<Effect> effects;
  if (grid.reference().size() != grid.factors().size()) return effects;
  for (size_t f = 0; f < grid.factors().size(); ++f)
    for (const std::string& level : grid.levels(f)) {
      const std::string& base = grid.reference()[f];
      if (level == base) continue;
      Effect effect = effect_of(grid, {{f, level}}, {{f, base}}, trim, scale);
      effect.what = main_name(grid.factors()[f], level, base);
      if (effect.pairs > 0) effects.push_back(std::move(effect));
    }
  correct_effects(effects);
  return effects;
}

std::vector<Effect> interactions_of(const std::vector<CellResult>& cells, double trim, Scale scale) {
  const Grid grid(cells, scale);
  std::vector<Effect> effects;
  if (grid.reference().size() != grid.factors().size()) return effects;
  const Levels& base = grid.reference();
  for (size_t f = 0; f < grid.factors().size(); ++f)
    for (size_t g = f + 1; g < grid.factors().size(); ++g)
      for (const std::string& one : grid.levels(f))
        for (const std::string& other : grid.levels(g)) {
          if (one == base[f] || other == base[g]) continue;
          Effect effect = effect_of(grid, {{f, one}, {g, other}}, {{f, base[f]}, {g, base[g]}}, trim, scale);
          effect.what = interaction_name(grid.factors()[f], one, grid.factors()[g], other);
          if (effect.pairs > 0) effects.push_back(std::move(effect));
        }
  correct_effects(effects);
  return effects;
}

}  // namespace drivetrain::study
