#include "sharding/settings.h"

#include <iterator>
#include <numeric>
#include <set>

#include <drivetrain/error.h>

#include "matrix/pairs.h"

namespace drivetrain::test {
namespace {

// Every two values meet in this list. On four ranks each way of summing micro-batches comes with sums in float32, the
// only ones that groups allow there.
const Setting kChosen[] = {
    {1, 3, 1, 0.3, "fp16"},          //
    {1, 3, 1, 0.3, "bf16"},          //
    {1, 3, 1, 0.0},                  //
    {2, 1, 0, 0.0, "fp16"},          //
    {2, 3, 0, 0.3, "bf16", "bf16"},  //
    {2, 3, 1, 0.0, "fp16", "bf16"},  //
    {2, 3, 2, 0.0, "", "bf16"},      //
    {3, 1, 0, 0.3},                  //
    {3, 3, 0, 0.3, "fp16"},          //
    {3, 3, 1, 0.0, "fp16", "bf16"},  //
    {3, 3, 2, 0.0, "bf16"},          //
    {4, 1, 0, 0.0, "bf16"},          //
    {4, 1, 0, 0.0, "bf16", "bf16"},  //
    {4, 3, 0, 0.0},                  //
    {4, 3, 1, 0.3},                  //
    {4, 3, 2, 0.3, "fp16"},
};

std::vector<Setting> all_settings() {
  std::vector<Setting> list;
  for (const int ranks : {1, 2, 3, 4})
    for (const double clipping : {0.3, 0.0})
      for (const char* precision : {"", "bf16", "fp16"})
        for (const char* communication : {"", "bf16"}) {
          list.push_back({ranks, 1, 0, clipping, precision, communication});
          for (const int reduce_every : {0, 1, 2})  // 2: the last sum is of fewer micro-batches
            list.push_back({ranks, 3, reduce_every, clipping, precision, communication});
        }
  return list;
}

// Sums inside a group and then across groups have the bits of one sum, unless they are rounded in between.
bool allows(const Setting& s, const ShardingStrategy& strategy) {
  if (s.ranks % strategy.ranks != 0) return false;
  return !(strategy.sums_in_two_steps && s.ranks > strategy.ranks && *s.communication);
}

std::vector<TableCell> cells_of(const std::vector<Setting>& settings) {
  std::vector<TableCell> cells;
  for (const Setting& s : settings)
    for (const ShardingStrategy& strategy : sharding_strategies())
      for (const bool share : {true, false})
        if (allows(s, strategy)) cells.push_back({s, &strategy, share});
  return cells;
}

// One rank sums nothing over ranks: how often and in which type shows nothing there.
bool shows_all(const Setting& s) { return s.ranks > 1 || (s.reduce_every == 1 && !*s.communication); }

Choice choice_of(const TableCell& cell) {
  const Setting& s = cell.setting;
  return {static_cast<int>(cell.strategy - sharding_strategies().data()),
          cell.share,
          s.ranks,
          s.accumulation == 1 ? 0 : 1 + s.reduce_every,
          s.clipping > 0,
          !*s.precision                        ? 0
          : s.precision == std::string("bf16") ? 1
                                               : 2,
          *s.communication != 0};
}

std::vector<Choice> choices_of(const std::vector<TableCell>& cells) {
  std::vector<Choice> choices;
  for (const TableCell& cell : cells)
    if (shows_all(cell.setting)) choices.push_back(choice_of(cell));
  return choices;
}

}  // namespace

std::string name_of(const Setting& s) {
  return concat(s.ranks, "_ranks_", s.accumulation, "_micro_batches_reduce_every_", s.reduce_every,
                s.clipping > 0 ? "_clipped" : "_unclipped", *s.precision ? "_" : "", s.precision,
                *s.communication ? "_summed_in_" : "", s.communication);
}

std::string name_of(const TableCell& cell) {
  return concat(cell.strategy->name, cell.share ? ", shared values" : ", own values");
}

Value config_of(const TableCell& cell, const std::string& sections) {
  const Setting& s = cell.setting;
  // Vectors of 36 to 108 elements, far below a block of the norm; matrices of 1.3 to 4 blocks; tied embedding; one
  // position table of less than a block.
  Value config = parse_json(R"({
    "train_steps": 3, "seed": 11, "train_micro_batch_size_per_gpu": 2, "eval_interval": 2, "monitors": "jsonl",
    "model": {"type": "gpt", "params": {"num_layers": 2, "hidden_size": 36, "num_attention_heads": 3, "ffn_hidden_size": 75,
              "vocab_size": 97, "max_position_embeddings": 16}},
    "dataset": {"type": "synthetic", "params": {"seq_length": 12}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.1}}})",
                            "test");
  config.set("gradient_accumulation_steps", s.accumulation);
  config.set("reduce_every", s.reduce_every);
  config.set("gradient_clipping", s.clipping);
  config.set("communicator", Value::Object{{"type", "local"}, {"params", Value::Object{{"share", cell.share}}}});
  if (*s.communication) config.set("communication_data_type", s.communication);
  // A loss scale so large that the first update overflows and is left out, and the last one is not.
  if (s.precision == std::string("fp16"))
    config.set("fp16",
               Value::Object{{"enabled", true}, {"initial_scale_power", s.ranks == 1 ? 22 : 21}, {"hysteresis", 1}});
  else if (*s.precision)
    config.set(s.precision, Value::Object{{"enabled", true}});
  const Value more = parse_json(sections, "strategy");
  for (const Value::Member& member : more.members()) config.set(member.key, member.value);
  return config;
}

Value config_of(const TableCell& cell) { return config_of(cell, cell.strategy->sections); }

std::vector<TableCell> all_cells() { return cells_of(all_settings()); }

std::vector<Setting> chosen_settings() { return {std::begin(kChosen), std::end(kChosen)}; }

std::vector<TableCell> chosen_cells() {
  const std::vector<TableCell> legal = cells_of(chosen_settings());
  // Groups that hold copies of each other's state have a mechanism of their own, which only four ranks show.
  std::vector<size_t> groups;
  for (size_t i = 0; i < legal.size(); ++i)
    if (legal[i].strategy->ranks == 2 && legal[i].setting.ranks == 4) groups.push_back(i);
  std::set<size_t> chosen;
  const auto add = [&](const std::vector<size_t>& from) {
    std::vector<Choice> choices;
    for (const size_t i : from) choices.push_back(choice_of(legal[i]));
    for (const size_t i : cover_pairs(choices)) chosen.insert(from[i]);
  };
  std::vector<size_t> all(legal.size());
  std::iota(all.begin(), all.end(), 0);
  add(all), add(groups);
  std::vector<TableCell> cells;
  for (const size_t i : chosen) cells.push_back(legal[i]);
  return cells;
}

size_t count_pairs(const std::vector<TableCell>& cells) { return count_pairs(choices_of(cells)); }

}  // namespace drivetrain::test
