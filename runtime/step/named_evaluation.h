// A set of the section `eval`: an evaluation plugin with a name and the steps it is due in. Main thread.
#pragma once

#include <memory>
#include <string>

#include <drivetrain/evaluation.h>

#include "internal.h"

namespace drivetrain {

struct NamedEvaluation {
  std::string name;      // of the set: figures are "eval/NAME/FIGURE"
  std::string id;        // "evaluation/TYPE"
  int64_t interval = 0;  // steps between two evaluations; 0: after the last step alone
  std::shared_ptr<Evaluation> evaluation;
  EvaluationFacts facts{};  // once it is open

  bool due(int64_t step, int64_t last_step) const {
    return step == last_step || (interval > 0 && step % interval == 0);
  }
};

// Opens it and checks what it says. Error(config) and Error(io) of its data; Error(plugin) for facts that do not fit.
DRIVETRAIN_INTERNAL void open_evaluation(NamedEvaluation& set, const RunFacts& run, const ModelFacts& model);

}  // namespace drivetrain
