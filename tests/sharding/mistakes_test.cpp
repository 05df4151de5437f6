// The chosen cells of the bitwise table find mistakes that show under one value of one setting only: a strategy of the
// table gives way to one in which the mistake was planted (mistaken.cpp), in the cells where the table trains it.
#include <gtest/gtest.h>

#include <map>

#include "sharding/bits.h"

namespace drivetrain::test {
namespace {

struct Planted {
  const char* mistake;
  const char* strategy;  // that gives way
  const char* options;   // that make the other one the same
  bool (*shows)(const Setting& s, bool share);
};

const Planted kPlanted[] = {
    // Another order of sums over micro-batches.
    {"sums_too_late", "zero stage 1", R"("stage": 1)", [](const Setting& s, bool) { return s.reduce_every == 2; }},
    // The last sum of a step, which is of fewer micro-batches.
    {"remainder_dropped", "zero stage 2", R"("stage": 2)", [](const Setting& s, bool) { return s.reduce_every == 2; }},
    // Another order of sums over ranks.
    {"across_groups_first", "fsdp, shard_group_size 2", R"("stage": 3, "group_size": 2)",
     [](const Setting& s, bool) { return s.ranks == 4; }},
    // Old values of other ranks.
    {"gather_left_out", "zero stage 1, group_size 2", R"("stage": 1, "group_size": 2)",
     [](const Setting&, bool share) { return !share; }},
    // A part of the gradients, where parts are of a number that is no power of two.
    {"third_part_dropped", "fsdp", R"("stage": 3)", [](const Setting& s, bool) { return s.ranks == 3; }},
};

std::string train_instead(const Planted& planted, const TableCell& cell, const char* mistake) {
  static const Registry registry(SearchPath::standard({}, {DRIVETRAIN_MISTAKEN_DIR}, ""));
  const std::string sections = concat(R"({"data_parallel": {"type": "mistaken", "params": {"mistake": ")", mistake,
                                      "\", ", planted.options, "}}}");
  return train_bits(config_of(cell, sections), cell.setting.ranks, registry).text;
}

class SameBitsMistakes : public testing::TestWithParam<Planted> {};

TEST_P(SameBitsMistakes, are_found_by_the_cells_of_their_strategy) {
  const Planted& planted = GetParam();
  int shown = 0, found = 0;
  for (const TableCell& cell : chosen_cells()) {
    if (cell.strategy->name != std::string(planted.strategy) || !planted.shows(cell.setting, cell.share)) continue;
    SCOPED_TRACE(name_of(cell.setting));
    const std::string& right = reference_of(cell.setting).text;
    if (shown++ == 0) {
      EXPECT_EQ(train_instead(planted, cell, "none"), right) << "no mistake is planted";
    }
    found += train_instead(planted, cell, planted.mistake) != right;
  }
  EXPECT_GE(found, 1) << "of " << shown << " cells";
  std::printf("  %s: found in %d of the %d cells that can show it\n", planted.mistake, found, shown);
}

INSTANTIATE_TEST_SUITE_P(Planted, SameBitsMistakes, testing::ValuesIn(kPlanted),
                         [](const auto& info) { return info.param.mistake; });

// Between an update and the next pass nobody reads whole values: neither the evaluations nor the final weights, which
// are part of the bits.
TEST(SameBitsLate, values_that_the_next_pass_gathers_are_those_that_were_gathered_behind_their_update) {
  std::map<std::string, int> tried;
  for (const TableCell& cell : chosen_cells()) {
    const std::string name = cell.strategy->name;
    const char* const stage = name == "zero stage 1" ? "1" : name == "zero stage 2" ? "2" : nullptr;
    if (!stage || cell.share || ++tried[name] > 2) continue;
    SCOPED_TRACE(name_of(cell));
    const std::string options = concat(R"("gather_late": true, "stage": )", stage);
    EXPECT_EQ(train_instead({"none", "", options.c_str(), nullptr}, cell, "none"), reference_of(cell.setting).text);
  }
  EXPECT_EQ(tried.size(), 2u);
}

}  // namespace
}  // namespace drivetrain::test
