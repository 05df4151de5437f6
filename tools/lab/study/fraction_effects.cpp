// Effects of a fraction of a cross. Columns are coded so that those of a factor sum to zero over its levels: then a
// main effect is the mean over the other factors' levels, as in a full cross. What the fitted columns take up of an
// interaction's columns that is not fitted (the alias matrix) tells what an effect is confounded with.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

#include "study/effects.h"
#include "study/least_squares.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

constexpr double kNone = 1e-6;  // a share of an effect, which is rounding below this

// A factor, or two together: an effect with a column for each combination of levels other than the reference's.
struct Term {
  std::vector<size_t> factors;
  std::vector<std::vector<size_t>> levels;  // of each column, by factor of the term, from 1
  std::vector<Column> columns;
};

struct Crossed {
  std::vector<std::string> factors;
  std::vector<std::vector<std::string>> levels;  // by factor, the reference's first
  std::vector<const CellResult*> cells;
  std::vector<std::vector<size_t>> rows;  // by cell, the level of each factor
};

bool takes_part(const CellResult& result) {
  return result.ok > 0 && !result.values().empty() && result.gate != Gate::failed && !result.cell->is_noise &&
         is_all_levels(*result.cell);
}

Crossed cross_of(const std::vector<CellResult>& cells) {
  Crossed cross;
  const auto reference =
      std::find_if(cells.begin(), cells.end(), [](const CellResult& one) { return one.cell->is_reference; });
  if (reference == cells.end()) return cross;
  for (const auto& [factor, level] : reference->cell->levels)
    cross.factors.push_back(factor), cross.levels.push_back({level});
  for (const CellResult& result : cells) {
    if (!takes_part(result)) continue;
    std::vector<size_t> row;
    for (size_t f = 0; f < cross.factors.size(); ++f) {
      auto& known = cross.levels[f];
      const std::string& level = result.cell->levels[f].second;
      const auto at = std::find(known.begin(), known.end(), level);
      row.push_back(static_cast<size_t>(at - known.begin()));
      if (at == known.end()) known.push_back(level);
    }
    cross.cells.push_back(&result), cross.rows.push_back(std::move(row));
  }
  return cross;
}

// 1 at its level, -1 at the reference's.
double code(size_t level, size_t column) { return level == column ? 1 : level == 0 ? -1 : 0; }

Term term_of(const Crossed& cross, const std::vector<size_t>& factors) {
  Term term{factors, {{}}, {}};
  for (const size_t f : factors) {
    std::vector<std::vector<size_t>> longer;
    for (const auto& levels : term.levels)
      for (size_t level = 1; level < cross.levels[f].size(); ++level)
        longer.push_back(levels), longer.back().push_back(level);
    term.levels = std::move(longer);
  }
  for (const auto& levels : term.levels) {
    Column column;
    for (const auto& row : cross.rows) {
      double value = 1;
      for (size_t i = 0; i < factors.size(); ++i) value *= code(row[factors[i]], levels[i]);
      column.push_back(value);
    }
    term.columns.push_back(std::move(column));
  }
  return term;
}

bool add_all(ColumnSpace& space, const Term& term) {
  return std::all_of(term.columns.begin(), term.columns.end(), [&](const Column& one) { return space.add(one); });
}

// Whether the term's columns are none of the others' sums.
bool is_estimable(const Term& term, const std::vector<const Term*>& others) {
  ColumnSpace space;
  space.add(Column(term.columns.front().size(), 1.0));
  for (const Term* const other : others)
    if (other != &term)
      for (const Column& column : other->columns) space.add(column);
  return add_all(space, term);
}

std::string term_name(const Crossed& cross, const Term& term) {
  std::string name;
  for (const size_t f : term.factors) name += (name.empty() ? "" : " x ") + cross.factors[f];
  return name;
}

using Shares = std::vector<std::vector<double>>;  // by column, the coefficients of a fit

// The terms, a mean first, that one fit has.
class Fit {
 public:
  explicit Fit(std::vector<const Term*> terms) : terms_(std::move(terms)) {
    for (const Term* const term : terms_) first_[term] = width_, width_ += term->columns.size();
  }

  // How much of the level combination's effect is in `coefficients`: the difference to the reference's levels.
  double effect(const Term& term, size_t which, const std::vector<double>& coefficients) const {
    double sum = 0;
    for (size_t column = 0; column < term.columns.size(); ++column) {
      double weight = 1;
      for (size_t i = 0; i < term.factors.size(); ++i)
        weight *= code(term.levels[which][i], term.levels[column][i]) - code(0, term.levels[column][i]);
      sum += weight * coefficients[first_.at(&term) + column];
    }
    return sum;
  }

  // Coefficients of values by cell, of the cells that have one; none: these cells do not tell the terms apart.
  std::vector<double> solved(const std::map<size_t, double>& values) const {
    const auto part = [&](const Column& column) {
      Column some;
      for (const auto& [cell, value] : values) some.push_back(column[cell]);
      return some;
    };
    ColumnSpace space;
    bool all = space.add(Column(values.size(), 1.0));
    for (const Term* const term : terms_)
      for (const Column& column : term->columns) all = all && space.add(part(column));
    Column right;
    for (const auto& [cell, value] : values) right.push_back(value);
    return all ? space.solve(right) : std::vector<double>();
  }

  // What the fit takes up of each column of a term outside of it.
  Shares shares_of(const Term& outside) const {
    Shares shares;
    for (const Column& column : outside.columns) {
      std::map<size_t, double> values;
      for (size_t i = 0; i < column.size(); ++i) values[i] = column[i];
      shares.push_back(solved(values));
    }
    return shares;
  }

 private:
  const std::vector<const Term*> terms_;
  std::map<const Term*, size_t> first_;
  size_t width_ = 1;
};

// How much of another term's own effect, at the levels where it is most, is in an effect that takes up `taken` of each
// of its columns. The inverse of the coding, factor by factor: coefficients are differences to the mean over levels.
double share_of(const Crossed& cross, const Term& other, const std::vector<double>& taken) {
  double most = 0;
  for (const auto& levels : other.levels) {
    double share = 0;
    for (size_t column = 0; column < taken.size(); ++column) {
      double weight = taken[column];
      for (size_t i = 0; i < other.factors.size(); ++i)
        weight *= (levels[i] == other.levels[column][i] ? 1 : 0) -
                  1 / static_cast<double>(cross.levels[other.factors[i]].size());
      share += weight;
    }
    most = std::max(most, std::abs(share));
  }
  return most;
}

// The terms outside of the fit that this effect takes up, those of which most is in it first.
std::vector<std::string> aliases_of(const Crossed& cross, const Fit& fit, const Term& term, size_t which,
                                    const std::vector<std::pair<const Term*, Shares>>& outside) {
  std::vector<std::pair<double, std::string>> found;
  for (const auto& [other, shares] : outside) {
    std::vector<double> taken;
    for (const std::vector<double>& share : shares) taken.push_back(fit.effect(term, which, share));
    const double share = std::round(share_of(cross, *other, taken) / kNone) * kNone;  // equal ones in their order
    if (share > 0) found.emplace_back(share, formatted("%s (%.2g)", term_name(cross, *other).c_str(), share));
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> names;
  for (const auto& [share, name] : found) names.push_back(name);
  return names;
}

// What places go by, on its scale, by block and cell.
std::map<int64_t, std::map<size_t, double>> values_of(const Crossed& cross, Scale scale) {
  std::map<int64_t, std::map<size_t, double>> blocks;
  for (size_t i = 0; i < cross.cells.size(); ++i)
    for (size_t run = 0; run < cross.cells[i]->values().size(); ++run)
      blocks[cross.cells[i]->value_blocks()[run]][i] = on_scale(cross.cells[i]->values()[run], scale);
  return blocks;
}

std::string name_of(const Crossed& cross, const Term& term, size_t which) {
  const auto level = [&](size_t i) { return cross.levels[term.factors[i]][term.levels[which][i]]; };
  const std::string& first = cross.factors[term.factors[0]];
  if (term.factors.size() == 1) return main_name(first, level(0), cross.levels[term.factors[0]][0]);
  return interaction_name(first, level(0), cross.factors[term.factors[1]], level(1));
}

// Why there is no such effect: the terms that have the same columns, else all others together.
std::string refusal_of(const Crossed& cross, const Term& term, const std::vector<const Term*>& others) {
  std::vector<std::string> same;
  for (const Term* const other : others)
    if (other != &term && !is_estimable(term, {other}))
      same.push_back((other->factors.size() == 1 ? "the main effect of " : "") + term_name(cross, *other));
  return term_name(cross, term) + ": the cells that ran cannot tell it from " +
         (same.empty() ? "other effects together" : join(same, " and "));
}

std::vector<const Term*> addresses(const std::vector<Term>& terms) {
  std::vector<const Term*> list;
  for (const Term& term : terms) list.push_back(&term);
  return list;
}

// Splits terms into those that are fitted and those that cannot be.
void sort_out(const Crossed& cross, const std::vector<Term>& terms, const std::vector<const Term*>& others,
              std::vector<const Term*>& fitted, std::vector<const Term*>& outside, std::vector<std::string>& refused) {
  for (const Term& term : terms) {
    const bool can = is_estimable(term, others);
    (can ? fitted : outside).push_back(&term);
    if (!can) refused.push_back(refusal_of(cross, term, others));
  }
}

void add_estimates(const Crossed& cross, const Fit& fit, const std::vector<const Term*>& fitted,
                   const std::vector<const Term*>& outside, double trim, Scale scale, FractionEffects& result) {
  std::vector<std::vector<double>> blocks;
  for (const auto& [block, values] : values_of(cross, scale))
    if (std::vector<double> solved = fit.solved(values); !solved.empty()) blocks.push_back(std::move(solved));
  if (blocks.empty()) return;
  std::vector<std::pair<const Term*, Shares>> shares;
  for (const Term* const term : outside) shares.emplace_back(term, fit.shares_of(*term));
  for (const Term* const term : fitted)
    for (size_t which = 0; which < term->levels.size(); ++which) {
      std::vector<double> differences;
      for (const std::vector<double>& solved : blocks) differences.push_back(fit.effect(*term, which, solved));
      Effect effect = effect_of_blocks(differences, trim, scale);
      effect.what = name_of(cross, *term, which), effect.aliases = aliases_of(cross, fit, *term, which, shares);
      (term->factors.size() == 1 ? result.effects : result.interactions).push_back(std::move(effect));
    }
}

}  // namespace

FractionEffects fraction_effects(const std::vector<CellResult>& cells, double trim, Scale scale) {
  FractionEffects result;
  const Crossed cross = cross_of(cells);
  std::vector<Term> mains, pairs;
  for (size_t f = 0; f < cross.factors.size(); ++f) {
    if (cross.levels[f].size() < 2) continue;
    mains.push_back(term_of(cross, {f}));
    for (size_t g = f + 1; g < cross.factors.size(); ++g)
      if (cross.levels[g].size() > 1) pairs.push_back(term_of(cross, {f, g}));
  }
  std::vector<const Term*> fitted, outside, all = addresses(mains);
  sort_out(cross, mains, all, fitted, outside, result.refused);
  for (const Term& pair : pairs) all.push_back(&pair);
  sort_out(cross, pairs, all, fitted, outside, result.refused);
  add_estimates(cross, Fit(fitted), fitted, outside, trim, scale, result);
  correct_effects(result.effects), correct_effects(result.interactions);
  return result;
}

}  // namespace drivetrain::study
