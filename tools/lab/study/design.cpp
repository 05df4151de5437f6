#include "study/design.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <drivetrain/error.h>

#include "base/printable.h"

namespace drivetrain::study {

std::string file_name(std::string text) {
  for (char& c : text)
    if (c == '/' || c == ' ' || static_cast<unsigned char>(c) < ' ') c = '_';
  return text;
}

namespace {

constexpr size_t kMostCells = 10000;

bool holds(const std::vector<Constraint::Condition>& conditions, const std::vector<int>& levels) {
  return std::all_of(conditions.begin(), conditions.end(), [&](const Constraint::Condition& c) {
    return std::find(c.levels.begin(), c.levels.end(), levels[c.factor]) != c.levels.end();
  });
}

bool allowed(const std::vector<Constraint>& constraints, const std::vector<int>& levels) {
  return std::none_of(constraints.begin(), constraints.end(), [&](const Constraint& c) {
    return holds(c.if_levels, levels) && (c.then_levels.empty() || !holds(c.then_levels, levels));
  });
}

std::vector<int> counts_of(const StudyFile& study) {
  std::vector<int> counts;
  for (const Factor& factor : study.factors) counts.push_back(static_cast<int>(factor.levels.size()));
  return counts;
}

std::vector<std::vector<int>> full_cross(const std::vector<int>& counts) {
  std::vector<std::vector<int>> list(1);
  for (const int count : counts) {
    std::vector<std::vector<int>> longer;
    for (const std::vector<int>& levels : list)
      for (int level = 0; level < count; ++level) longer.push_back(levels), longer.back().push_back(level);
    list = std::move(longer);
    if (list.size() > kMostCells)
      throw fail(ErrorCode::config, "the cross of the factors has more than ", kMostCells,
                 " cells\n   use \"cross\": \"fractional\" or \"one_at_a_time\", or fewer levels");
  }
  return list;
}

std::vector<std::vector<int>> one_at_a_time(const StudyFile& study) {
  std::vector<std::vector<int>> list = {study.reference};
  for (size_t f = 0; f < study.factors.size(); ++f)
    for (int level = 0; level < static_cast<int>(study.factors[f].levels.size()); ++level)
      if (level != study.reference[f]) list.push_back(study.reference), list.back()[f] = level;
  return list;
}

// "zero=1,attention=flash"; a row without levels: what it sets.
std::string id_of(const StudyFile& study, const std::vector<int>& levels, const std::vector<Change>& changes) {
  std::string id;
  const auto add = [&](const std::string& part) { id += (id.empty() ? "" : ",") + part; };
  for (size_t f = 0; f < levels.size(); ++f)
    if (levels[f] >= 0) add(study.factors[f].name + "=" + study.factors[f].levels[static_cast<size_t>(levels[f])].name);
  for (const Change& change : changes) add(change.key + "=" + (change.value ? change.value->to_json() : "absent"));
  return file_name(id.empty() ? "base" : id);
}

void check_twice(const Cell& cell) {
  std::set<std::string> keys;
  for (const Change& change : cell.changes)
    if (!keys.insert(change.key).second)
      throw fail(ErrorCode::config, "cell ", shown(cell.id), " changes \"", shown(change.key),
                 "\" twice\n   two factors, or a factor and a row, decide over one key: leave it to one of them");
}

Cell cell_of(const StudyFile& study, const std::vector<int>& levels, const std::vector<Change>& further,
             const std::string& id) {
  Cell cell{id.empty() ? id_of(study, levels, further) : id, levels, {}};
  for (size_t f = 0; f < levels.size(); ++f) {
    const int level = levels[f] >= 0 ? levels[f] : study.reference[f];
    const std::vector<Change>& own = study.factors[f].levels[static_cast<size_t>(level)].changes;
    cell.changes.insert(cell.changes.end(), own.begin(), own.end());
  }
  cell.changes.insert(cell.changes.end(), further.begin(), further.end());
  check_twice(cell);
  return cell;
}

void put_reference_first(const StudyFile& study, std::vector<Cell>& cells) {
  auto reference = std::find_if(cells.begin(), cells.end(), [&](const Cell& cell) {
    return study.cross != Cross::none && cell.levels == study.reference;
  });
  if (reference == cells.end()) reference = cells.begin();
  std::rotate(cells.begin(), reference, reference + 1);
  cells.front().is_reference = true;
}

}  // namespace

Design design_of(const StudyFile& study) {
  Design design;
  std::vector<std::vector<int>> crossed;
  if (study.cross == Cross::full) crossed = full_cross(counts_of(study));
  if (study.cross == Cross::one_at_a_time) crossed = one_at_a_time(study);
  if (study.cross == Cross::fractional) {
    const Fraction fraction = fraction_of(counts_of(study), study.fraction);
    crossed = fraction.cells;
    design.aliasing =
        concat("1 of ", study.fraction, " cells of the full cross, resolution ", fraction.resolution,
               fraction.resolution == 3   ? ": a main effect cannot be told from interactions of two factors"
               : fraction.resolution == 4 ? ": interactions of two factors cannot be told from one another"
                                          : "");
  }
  for (const std::vector<int>& levels : crossed)
    if (allowed(study.constraints, levels))
      design.cells.push_back(cell_of(study, levels, {}, ""));
    else
      ++design.left_out;
  for (const Row& row : study.rows) design.cells.push_back(cell_of(study, row.levels, row.changes, row.id));
  if (design.cells.empty())
    throw fail(ErrorCode::config, study.path, ": the constraints leave no cell of ", design.left_out,
               "\n   loosen \"constraints\", or add a level that they allow");
  std::set<std::string> ids;
  for (const Cell& cell : design.cells)
    if (!ids.insert(cell.id).second)
      throw fail(ErrorCode::config, study.path, ": two cells have the id ", shown(cell.id),
                 "\n   a row repeats a cell of the cross or another row: leave one out, or give rows an \"id\"");
  put_reference_first(study, design.cells);
  if (study.noise_cell) {
    Cell noise = design.cells.front();
    noise.id = "A-A", noise.is_reference = false, noise.is_noise = true;
    if (ids.contains(noise.id)) throw fail(ErrorCode::config, study.path, ": the id A-A is that of the noise cell");
    design.cells.push_back(std::move(noise));
  }
  return design;
}

std::vector<Turn> order_of(size_t cells, int64_t blocks, uint64_t seed) {
  uint64_t state = seed;
  const auto next = [&state] {  // SplitMix64, since the library's shuffle is another one elsewhere
    uint64_t z = state += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull, z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
  };
  std::vector<Turn> order;
  for (int64_t block = 0; block < blocks; ++block) {
    std::vector<size_t> turn(cells);
    std::iota(turn.begin(), turn.end(), size_t{0});
    for (size_t i = cells; i > 1; --i) std::swap(turn[i - 1], turn[next() % i]);
    for (const size_t cell : turn) order.push_back({block, cell});
  }
  return order;
}

}  // namespace drivetrain::study
