// A model's parameters from a Hugging Face folder, or from other people's checkpoints, and to such a folder, by the
// model's own weight rules.
//
// Thread: main. Memory: one parameter at a time beyond what the caller holds; reading touches only the pages of this
// rank's slices. Errors: Error(config) with everything that does not fit, before any value is changed; Error(io) for
// damaged files and full disks.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <drivetrain/mesh.h>
#include <drivetrain/model.h>
#include <drivetrain/optimizer.h>

#include "internal.h"
#include "state/weight_source.h"

namespace drivetrain {

// Fills Trainable::value (any floating dtype, flat, the range its layout names) of every target; `working` and `grad`
// are left alone. A frozen parameter is given as a Trainable with param, value and layout. Every rank checks the names
// of the whole folder, and shapes and ties of what it holds. Rows that the folder may lack (WeightPart::absent) are
// filled, too; `seed`: of those that start by Param::init. Returns warnings for the log.
DRIVETRAIN_INTERNAL std::vector<std::string> load_weights(const std::string& folder, const WeightRules& rules,
                                                          const std::vector<Trainables>& targets, const Mesh& mesh,
                                                          uint64_t seed = 0);

// The whole parameter as float32 in our orientation, on any device.
using FetchParam = std::function<at::Tensor(const std::string& param)>;

inline constexpr uint64_t kMaxShardBytes = 5'000'000'000;

DRIVETRAIN_INTERNAL std::vector<std::string> load_weights(const WeightSource& source, const WeightRules& rules,
                                                          const std::vector<Trainables>& targets, const Mesh& mesh,
                                                          uint64_t seed = 0);

// What such a folder holds beside what the rules say.
struct HfExtras {
  at::ScalarType dtype = at::kFloat;    // of the tensors; config.json says it
  Value generation = {};                // generation_config.json; null: made of config.json
  std::vector<std::string> files = {};  // paths of files that are copied under their own names
};

// Weights that are written by rules of their own: a model's, or those of a strategy's WeightFolder.
struct ExportedWeights {
  WeightRules rules;
  FetchParam fetch;         // called once per rule, in the order of rules.rules
  std::string folder = {};  // below the folder that is written; empty: that folder itself
  // Empty: the weights are a model's, with all files of a Hugging Face folder, in shards with an index where they are
  // large. Else the one file that holds them, and the file for rules.config (empty: none).
  std::string weights_file = {}, config_file = {};
  HfExtras extras = {};
  std::map<std::string, std::string> metadata = {};  // of the file of weights, beside format and step

  bool is_model() const { return weights_file.empty(); }
};

// Writes one folder with all of `sets`, in this order, so that other ranks can take part in gathers by walking the same
// lists. `shapes`: of every parameter that the rules name, whole. Nothing appears at `folder` until all of it is on
// disk. `step`: after which the weights are these; it stands in the metadata of the files. -1: unknown.
DRIVETRAIN_INTERNAL void save_weights(const std::string& folder, const std::vector<ExportedWeights>& sets,
                                      const std::map<std::string, std::vector<int64_t>>& shapes, int64_t step = -1,
                                      uint64_t max_shard_bytes = kMaxShardBytes);

// The step in a folder that save_weights has written; -1: there is none, or no such folder.
DRIVETRAIN_INTERNAL int64_t step_of_hf_folder(const std::string& folder);

}  // namespace drivetrain
