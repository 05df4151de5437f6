// Rows of published tables as data, and the config of the run that each of them is of: configs/published/tables.json
// has what was printed, systems.json how each system trained (profile.h). Main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "internal.h"
#include "predict/profile.h"

namespace drivetrain {

struct PublishedRow {
  std::string label;  // "16 ranks, tensor 2": where rows of a table differ
  Value config;       // of a run of this program that does the same
  std::string profile;
  int64_t ranks = 1, tensor = 1, stages = 1, context = 1;
  int64_t shard_ranks = -1;  // that share the optimizer's state; -1: all that have the same part of the model
  bool shard_values = false, recompute = false;
  int64_t micro_batch = 1, micro_batches = 1, seq_length = 0;
  std::optional<double> tgs, gib;  // as printed
  bool held_back = false;          // constants are not fitted to it: it tells how well other rows are planned

  int64_t replicas() const { return ranks / (tensor * stages); }  // ranks with the same part of the model
};

struct PublishedTable {
  std::string id;
  Profile system;
  std::vector<PublishedRow> rows;
};

// Ids of the tables that have rows and a system, in the file's order.
DRIVETRAIN_INTERNAL std::vector<std::string> published_names(const std::string& folder);

// Error(config): no such table, with those that there are; a row without a
// quantity that its system does not give either, by file, place and name.
DRIVETRAIN_INTERNAL PublishedTable read_published(const std::string& name, const std::string& folder);

}  // namespace drivetrain
