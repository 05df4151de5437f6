// What the bitwise table trains under, and which strategy meets which setting in it. Value types.
#pragma once

#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "sharding/strategies.h"

namespace drivetrain::test {

struct Setting {
  int ranks;
  int accumulation;
  int reduce_every;  // 0: all micro-batches of a step
  double clipping;
  const char* precision = "";      // the section to switch on; empty: float32
  const char* communication = "";  // communication_data_type; empty: the gradients'
};
std::string name_of(const Setting& s);

// One training of the table.
struct TableCell {
  Setting setting;
  const ShardingStrategy* strategy;
  bool share;  // of communicator/local: ranks have values in common
};
std::string name_of(const TableCell& cell);
// With the sections of the cell's strategy, or with others in their place. Without output_dir.
Value config_of(const TableCell& cell);
Value config_of(const TableCell& cell, const std::string& sections);

// Every setting with every strategy that it allows.
std::vector<TableCell> all_cells();
// Few settings, and cells of them, in which every two values meet that do in all_cells(): of strategy, sharing, ranks,
// micro-batches with reduce_every, clipping, precision and type of sums.
std::vector<Setting> chosen_settings();
std::vector<TableCell> chosen_cells();

// Pairs of values in these cells, without those of one rank with what only several ranks can show.
size_t count_pairs(const std::vector<TableCell>& cells);

}  // namespace drivetrain::test
