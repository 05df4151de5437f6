// Effects of fractions against those of full crosses with planted effects.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "study/design.h"
#include "study/effects.h"
#include "study/report.h"

namespace drivetrain::study {
namespace {

using Levels = std::vector<int>;
using Speed = std::function<double(const Levels&)>;  // the logarithm of a cell's speed

// A study whose cells have these speeds; two blocks, the second one slower by a constant.
struct Planted {
  std::vector<CellRecord> records;
  std::vector<CellResult> results;

  Planted(const std::vector<Levels>& cells, const Speed& speed) {
    for (const Levels& levels : cells) {
      CellRecord record;
      for (size_t f = 0; f < levels.size(); ++f) {
        const std::string name(1, static_cast<char>('a' + f)), level = std::to_string(levels[f]);
        record.levels.emplace_back(name, level), record.id += (f > 0 ? "," : "") + name + "=" + level;
      }
      record.is_reference = std::all_of(levels.begin(), levels.end(), [](int x) { return x == 0; });
      records.push_back(record);
    }
    for (size_t i = 0; i < cells.size(); ++i) {
      CellResult result;
      result.cell = &records[i], result.ok = 2, result.blocks = {0, 1};
      result.tgs = {std::exp(speed(cells[i])), std::exp(speed(cells[i]) - 0.2)};
      results.push_back(result);
    }
  }
};

std::vector<Levels> full(const std::vector<int>& counts) { return fraction_of(counts, 1).cells; }

// Every factor's own share, the same whatever the others are.
double additive(const Levels& levels) {
  double sum = 3;
  for (size_t f = 0; f < levels.size(); ++f) sum += 0.05 * static_cast<double>((f + 1) * levels[f] * levels[f]);
  return sum;
}

// In any order: a fraction may meet the levels of a factor in another one.
void expect_same(const std::vector<Effect>& found, const std::vector<Effect>& wanted) {
  EXPECT_EQ(found.size(), wanted.size());
  for (const Effect& one : wanted) {
    const auto same =
        std::find_if(found.begin(), found.end(), [&](const Effect& effect) { return effect.what == one.what; });
    ASSERT_NE(same, found.end()) << one.what;
    EXPECT_NEAR(same->change, one.change, 1e-9) << one.what;
    EXPECT_EQ(same->n, 2);
  }
}

const std::vector<std::pair<std::vector<int>, int64_t>> kFractions = {{{2, 2, 2}, 2},       {{2, 2, 2, 2}, 2},
                                                                      {{2, 2, 2, 2, 2}, 2}, {{2, 2, 2, 2, 2, 2, 2}, 16},
                                                                      {{3, 3, 3}, 3},       {{2, 2, 2, 3}, 2}};

TEST(FractionEffects, additive_effects_are_those_of_the_full_cross) {
  for (const auto& [counts, part] : kFractions) {
    const Planted some(fraction_of(counts, part).cells, additive), all(full(counts), additive);
    expect_same(fraction_effects(some.results).effects, main_effects(all.results));
  }
}

// The whole cross is a fraction of which nothing is left out.
TEST(FractionEffects, of_a_whole_cross_are_the_means_over_pairs_of_cells) {
  const auto speed = [](const Levels& x) { return additive(x) + 0.3 * x[0] * x[1] - 0.1 * x[1] * x[2] * x[2]; };
  const Planted all(full({2, 3, 2}), speed);
  const FractionEffects found = fraction_effects(all.results);
  expect_same(found.effects, main_effects(all.results));
  expect_same(found.interactions, interactions_of(all.results));
  EXPECT_TRUE(found.refused.empty());
  for (const Effect& effect : found.effects) EXPECT_TRUE(effect.aliases.empty()) << effect.what;
}

// a = b x c in this half: an interaction of b and c is in a's figure, by half of it, and that is said.
TEST(FractionEffects, a_main_effect_names_the_interaction_that_it_cannot_be_told_from) {
  const auto speed = [](const Levels& x) { return additive(x) + 0.4 * x[1] * x[2]; };
  const Planted some(fraction_of({2, 2, 2}, 2).cells, speed), plain(fraction_of({2, 2, 2}, 2).cells, additive);
  const FractionEffects found = fraction_effects(some.results), without = fraction_effects(plain.results);
  ASSERT_EQ(found.effects.size(), 3u);
  const std::vector<std::vector<std::string>> wanted = {{"b x c (0.5)"}, {"a x c (0.5)"}, {"a x b (0.5)"}};
  for (size_t f = 0; f < 3; ++f) EXPECT_EQ(found.effects[f].aliases, wanted[f]);
  const double shift = std::log1p(found.effects[0].change) - std::log1p(without.effects[0].change);
  EXPECT_NEAR(std::abs(shift), 0.2, 1e-9);
  EXPECT_TRUE(found.interactions.empty());
  ASSERT_EQ(found.refused.size(), 3u);
  EXPECT_EQ(found.refused[2], "b x c: the cells that ran cannot tell it from the main effect of a");
}

TEST(FractionEffects, resolution_four_has_clear_main_effects_and_pairs_of_interactions) {
  const auto speed = [](const Levels& x) { return additive(x) + 0.4 * x[1] * x[2] - 0.2 * x[0] * x[3]; };
  const Planted some(fraction_of({2, 2, 2, 2}, 2).cells, speed), all(full({2, 2, 2, 2}), speed);
  const FractionEffects found = fraction_effects(some.results);
  expect_same(found.effects, main_effects(all.results));
  for (const Effect& effect : found.effects) EXPECT_TRUE(effect.aliases.empty()) << effect.what;
  EXPECT_TRUE(found.interactions.empty());
  ASSERT_EQ(found.refused.size(), 6u);
  EXPECT_EQ(found.refused[0], "a x b: the cells that ran cannot tell it from c x d");
}

TEST(FractionEffects, resolution_five_has_all_interactions) {
  const auto speed = [](const Levels& x) { return additive(x) + 0.4 * x[1] * x[2] - 0.2 * x[0] * x[4]; };
  const Planted some(fraction_of({2, 2, 2, 2, 2}, 2).cells, speed), all(full({2, 2, 2, 2, 2}), speed);
  const FractionEffects found = fraction_effects(some.results);
  expect_same(found.effects, main_effects(all.results));
  expect_same(found.interactions, interactions_of(all.results));
  EXPECT_TRUE(found.refused.empty());
}

TEST(FractionEffects, a_cell_that_did_not_run_bends_no_additive_effect) {
  Planted some(fraction_of({2, 2, 2, 2, 2, 2}, 4).cells, additive);
  const Planted all(full({2, 2, 2, 2, 2, 2}), additive);
  some.results[5].ok = 0, some.results[5].tgs.clear(), some.results[5].blocks.clear();
  expect_same(fraction_effects(some.results).effects, main_effects(all.results));
}

TEST(FractionEffects, a_factor_whose_levels_did_not_run_apart_is_refused_in_words) {
  const Planted two({{0, 0, 0}, {0, 1, 1}}, additive);
  const FractionEffects found = fraction_effects(two.results);
  EXPECT_TRUE(found.effects.empty());
  ASSERT_GE(found.refused.size(), 2u);
  EXPECT_EQ(found.refused[0], "b: the cells that ran cannot tell it from the main effect of c");
}

TEST(FractionEffects, every_form_of_the_report_has_aliases_and_refusals) {
  const Planted some(fraction_of({2, 2, 2}, 2).cells, additive);
  const FractionEffects found = fraction_effects(some.results);
  Analysis analysis;
  analysis.effects = found.effects, analysis.refused_effects = found.refused;
  StudyRecord study;
  study.aliasing = "1 of 2 cells of the full cross, resolution 3", study.environment = Value::object();
  for (const std::string& text : {effects_csv(analysis), effects_markdown(study, analysis),
                                  effects_html(study, analysis), json_text(study, analysis)}) {
    EXPECT_NE(text.find("a 1 instead of 0"), std::string::npos) << text;
    EXPECT_NE(text.find("b x c"), std::string::npos) << text;
    EXPECT_NE(text.find("cannot tell it from the main effect of a"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace drivetrain::study
