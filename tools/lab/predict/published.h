// Rows of published tables, and the systems that they are of, both as data: configs/published/tables.json has what was
// printed, systems.json how each system trained. Main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <drivetrain/value.h>

#include "internal.h"
#include "predict/hardware.h"

namespace drivetrain {

struct ModelShape {
  std::string name;
  double layers = 0, hidden = 0, heads = 0, groups = 0, head_dim = 0, ffn = 0, vocab = 0, parameters = 0;
  bool gated = true;
};

// Of another system: what its steps and its memory have that follows from no shape. Stated in the file, one set of
// figures for all its rows.
struct SystemTime {
  double step_s = 0, owner_s = 0;  // of a step; of each rank that owns a part of the state, one after another
  double update_bytes = 0;         // that the optimizer moves per parameter
  bool overlaps = true;            // data-parallel messages move beside computations
};
struct SystemMemory {
  double overhead_gib = 0;  // context, communicators, the allocator's cache
  // Per parameter: that each rank holds whole; that are sharded; and all of them where values are sharded too.
  double whole_bytes = 0, shared_bytes = 0, shared_values_bytes = 0;
  double layer_bytes = 0;       // per token and column, of the layer that is at work
  double kept_layer_bytes = 0;  // the same of every layer, where none runs again
  double input_bytes = 0;       // the same of a layer's input
  double logit_bytes = 0;       // per token and word
  double limit_share = 0;       // rows this near to what the device has are judged as "fits" alone
};

struct TrainingSystem {
  std::string name, hardware, dtype;
  std::vector<std::string> assumptions;
  SystemTime time;
  SystemMemory memory;
  bool has_time = false, has_memory = false;
  Value columns, constants;
};

struct PublishedRow {
  std::string label;  // "16 ranks, tensor 2": where rows of a table differ
  ModelShape model;
  int64_t ranks = 1, tensor = 1, stages = 1, context = 1;
  int64_t shard_ranks = -1;  // that share the optimizer's state; -1: all that have the same part of the model
  bool shard_values = false, recompute = false;
  int64_t micro_batch = 1, micro_batches = 1, seq_length = 0;
  std::optional<double> tgs, gib;  // as printed

  int64_t replicas() const { return ranks / (tensor * stages); }  // ranks with the same part of the model
  // Tokens of a micro-batch that one rank computes.
  double rank_tokens() const { return static_cast<double>(micro_batch * seq_length) / static_cast<double>(context); }
};

struct PublishedTable {
  std::string id;
  TrainingSystem system;
  Hardware hardware;
  std::vector<PublishedRow> rows;
};

// Ids of the tables that have rows and a system, in the file's order.
DRIVETRAIN_INTERNAL std::vector<std::string> published_names(const std::string& folder);

// `hardware`: the folder of hardware files. Error(config): no such table, with those that there are; a row without a
// quantity that its system does not give either, by file, place and name.
DRIVETRAIN_INTERNAL PublishedTable read_published(const std::string& name, const std::string& folder,
                                                  const std::string& hardware);

}  // namespace drivetrain
