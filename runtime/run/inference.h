// A model loaded from a folder, for forward passes only: no dataset, optimizer or ranks. Main thread.
#pragma once

#include <memory>
#include <string>

#include <drivetrain/model.h>

#include "internal.h"
#include "plugin/registry.h"

namespace drivetrain {

class DRIVETRAIN_INTERNAL Inference {
 public:
  // `folder`: a run folder (its weights are in final/) or a Hugging Face folder. Error(config) if it holds no model.
  Inference(const std::string& folder, int64_t seed, const Registry& registry, std::shared_ptr<Log> log);
  ~Inference();

  const Model& model() const;
  uint64_t seed() const;
  at::Tensor logits(const at::Tensor& tokens_BS);  // int64 [B, S] -> [B, S, V]

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace drivetrain
