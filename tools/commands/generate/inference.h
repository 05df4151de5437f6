// A model loaded from a folder, for forward passes only: no dataset, optimizer or ranks. Main thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <drivetrain/model.h>

#include "generate/generation_cache.h"
#include "generate/generation_memory.h"
#include "generate/model_source.h"
#include "internal.h"
#include "plan/choose_plugins.h"
#include "plugin/registry.h"
#include "step/named_evaluation.h"

namespace drivetrain {

struct InferenceSettings {
  std::string device = "cpu";  // or "cuda", which is open
  std::string dtype = "f32";   // of values and activations: f32, bf16, f16
  std::string attention{};     // name of a plugin; empty: that of the run, else the default
};

// A model of a folder as it will be loaded: nothing of its weights is read.
struct PreparedInference {
  std::unique_ptr<PreparedRun> run;
  ModelSource source;
  std::string folder;     // the one that was given
  bool is_alone = false;  // no run is known whose strategies could take part
};
// `folder`: a run folder or a Hugging Face folder. Of a run the strategies that change what the model computes take
// part (run_strategies.h). Error(config) if it holds no model.
DRIVETRAIN_INTERNAL PreparedInference prepare_inference(const std::string& folder, int64_t seed,
                                                        const Registry& registry, std::shared_ptr<Log> log,
                                                        const InferenceSettings& on = {});

class DRIVETRAIN_INTERNAL Inference {
 public:
  Inference(PreparedInference prepared, const Registry& registry);
  Inference(const std::string& folder, int64_t seed, const Registry& registry, std::shared_ptr<Log> log,
            const InferenceSettings& on = {});
  ~Inference();

  const Model& model() const;
  uint64_t seed() const;
  at::Tensor logits(const at::Tensor& tokens_BS);  // int64 [B, S] -> [B, S, V]

  std::unique_ptr<GenerationCache> new_cache(int64_t rows, int64_t capacity) const;
  // One pass over the columns that are new: [B, S] -> the logits of the last column, [B, V]. The caller advances the
  // cache.
  at::Tensor next_logits(const at::Tensor& tokens_BS, GenerationCache& cache);
  // Whether the passes so far left keys of every block of the model in the cache. Where they did not, the model looks
  // at earlier positions by something else, or not at all, and is computed for whole texts.
  bool every_block_appended(const GenerationCache& cache) const;
  // As it was up to now at the fullest moment, without what the CPU's allocator does not count, blocks below 64 KB.
  // `keys`: of the largest cache, in bytes; 0: there was none.
  GenerationMemory measured_memory(int64_t keys) const;

  struct Evaluated {
    Value figures;
    EvaluationFacts facts;
  };
  // What an evaluation says of the model. `seq_length`: of the run that made it, where it is known. `batch_size`: rows
  // that are computed together, where nobody wants the loss of single ones.
  Evaluated evaluate(const std::string& name, const ChosenPlugin& set, std::optional<int64_t> seq_length,
                     int64_t batch_size);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace drivetrain
