// The bitwise table: under one number of ranks, micro-batches, `reduce_every` and clipping, every strategy gives the
// losses, norms, evaluations and final weights of every other byte for byte, whether the local communicator's ranks
// share values or each has its own. In the cells that are trained here every two values meet (settings.h);
// DRIVETRAIN_ALL_SETTINGS=1 trains all cells.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include <drivetrain/testkit/kit/poisoned_memory.h>
#include "sharding/bits.h"

namespace drivetrain::test {
namespace {

// Nobody's bits may hang on what memory held before, nor on values after their storage was freed.
PoisonedMemory poisoned;

// The cells of one setting.
using Row = std::vector<TableCell>;

std::vector<Row> rows() {
  std::map<std::string, Row> by_setting;
  std::vector<Row> list;
  for (const TableCell& cell : std::getenv("DRIVETRAIN_ALL_SETTINGS") ? all_cells() : chosen_cells())
    by_setting[name_of(cell.setting)].push_back(cell);
  for (const auto& [name, row] : by_setting) list.push_back(row);
  return list;
}

class SameBits : public testing::TestWithParam<Row> {};

TEST_P(SameBits, whatever_is_shared_out) {
  const Setting& s = GetParam().front().setting;
  const Bits& wanted = reference_of(s);
  EXPECT_GT(wanted.last_norm, s.clipping) << "nothing is clipped";
  EXPECT_EQ(wanted.text.find("null") != std::string::npos, s.precision == std::string("fp16"))
      << "an update is left out";
  std::printf("  %s\n", name_of(s).c_str());
  for (const TableCell& cell : GetParam()) {
    SCOPED_TRACE(name_of(cell));
    Bits found;
    ASSERT_NO_THROW(found = train_bits(cell));
    std::printf("    %s  %s\n", found.digest.c_str(), name_of(cell).c_str());
    EXPECT_EQ(found.text, wanted.text);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, SameBits, testing::ValuesIn(rows()),
                         [](const auto& info) { return name_of(info.param.front().setting); });

const char* sections_of(const std::string& name) {
  for (const ShardingStrategy& strategy : sharding_strategies())
    if (name == strategy.name) return strategy.sections;
  throw std::logic_error("no strategy " + name);
}

// An optimizer that computes with whole matrices, of which ranks hold uneven parts.
TEST(SameBitsTable, holds_for_whole_matrices) {
  const char* const muon = R"({"optimizer": {"type": "Muon", "params": {"muon_lr": 0.02, "adam_lr": 0.01,
                                                                        "weight_decay": 0.1}}})";
  const auto with_muon = [&](const TableCell& cell, const char* sections) {
    Value config = config_of(cell, sections);
    const Value optimizer = parse_json(muon, "muon");
    config.set("optimizer", *optimizer.find("optimizer"));
    return train_bits(config, cell.setting.ranks).text;
  };
  const char* const offload = R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})";
  // In float32 every strategy, then groups that hold copies of each other's state, then an update that is left out.
  const auto wants = [](const Setting& s, const ShardingStrategy& strategy) {
    if (s.ranks == 4) return strategy.ranks == 2;
    return !*s.precision || strategy.name == std::string("zero stage 3");
  };
  for (const Setting& s : {Setting{3, 3, 1, 0.3}, {4, 1, 0, 0.0, "bf16"}, {3, 3, 2, 0.3, "fp16"}}) {
    const std::string wanted = with_muon({s, nullptr, true}, sections_of("ddp"));
    EXPECT_NE(wanted, reference_of(s).text) << "the optimizer is another one";
    EXPECT_EQ(wanted.find("null") != std::string::npos, s.precision == std::string("fp16")) << "an update is left out";
    for (const ShardingStrategy& strategy : sharding_strategies())
      if (s.ranks % strategy.ranks == 0 && wants(s, strategy)) {
        EXPECT_EQ(with_muon({s, &strategy, true}, strategy.sections), wanted) << name_of(s) << " " << strategy.name;
      }
    EXPECT_EQ(with_muon({s, nullptr, false}, offload), wanted) << name_of(s) << ", offload";
  }
}

TEST(SameBitsTable, has_every_pair_of_values) {
  const std::vector<TableCell> cells = chosen_cells();
  EXPECT_EQ(count_pairs(cells), count_pairs(all_cells()));
  std::printf("  %zu trainings under %zu settings for %zu pairs\n", cells.size(), chosen_settings().size(),
              count_pairs(cells));
}
std::string bits_of(const Setting& setting, const char* strategy) {
  return train_bits(config_of({setting, nullptr, true}, sections_of(strategy)), setting.ranks).text;
}

// A digest is worth something only if what may change the bits does.
TEST(SameBitsTable, tells_settings_apart) {
  std::set<std::string> seen;
  for (const Setting& s : {Setting{2, 1, 0, 0.3},
                           {2, 1, 0, 0},
                           {2, 3, 0, 0.3},
                           {2, 3, 1, 0.3},
                           {2, 3, 0, 0.3, "bf16"},
                           {2, 3, 0, 0.3, "", "bf16"}})
    seen.insert(reference_of(s).digest);
  EXPECT_EQ(seen.size(), 6u);
}

TEST(SameBitsTable, needs_no_reduce_every_without_accumulation) {
  for (const char* name : {"ddp", "zero stage 3", "fsdp"})
    EXPECT_EQ(bits_of({2, 1, 1, 0.3}, name), reference_of({2, 1, 0, 0.3}).text) << name;
}

TEST(SameBitsTable, is_the_same_for_all_micro_batches_by_their_number) {
  for (const char* name : {"zero stage 1", "zero stage 3"})
    EXPECT_EQ(bits_of({2, 3, 3, 0.3}, name), reference_of({2, 3, 0, 0.3}).text) << name;
}

// Of the weights: the final ones are averages of what each rank updates.
TEST(SameBitsTable, is_the_same_for_moving_averages) {
  const auto averaged = [](const char* strategy) {
    Value config = config_of({{2, 3, 0, 0.3}, nullptr, true}, sections_of(strategy));
    config.set("ema", parse_json(R"({"decay": 0.7})", "test"));
    return train_bits(config, 2).text;
  };
  const std::string wanted = averaged("ddp");
  EXPECT_NE(wanted, reference_of({2, 3, 0, 0.3}).text) << "the weights are averages";
  for (const char* name : {"zero stage 1", "zero stage 2", "zero stage 3", "fsdp"})
    EXPECT_EQ(averaged(name), wanted) << name;
}

// Without the key, each plugin does what needs the least memory: the stages that cut gradients sum every micro-batch.
TEST(SameBitsTable, leaves_reduce_every_to_the_strategy_where_it_is_not_given) {
  for (const auto& [name, reduce_every] : std::vector<std::pair<const char*, int>>{
           {"ddp", 0}, {"zero stage 1", 0}, {"zero stage 2", 1}, {"zero stage 3", 1}, {"fsdp", 1}}) {
    const Setting setting = {2, 3, reduce_every, 0.3};
    Value config = config_of({setting, nullptr, true}, sections_of(name));
    config.erase("reduce_every");
    EXPECT_EQ(train_bits(config, setting.ranks).text, reference_of(setting).text) << name;
  }
}

}  // namespace
}  // namespace drivetrain::test
