#include "step/named_evaluation.h"

#include <drivetrain/error.h>

#include "plugin_calls/plugin_call.h"

namespace drivetrain {

void open_evaluation(NamedEvaluation& set, const RunFacts& run, const ModelFacts& model) {
  const PluginCall open{.id = set.id, .hook = "open", .keeps_errors = true};
  set.facts = plugin_call(open, [&] { return set.evaluation->open(run, model); });
  const EvaluationFacts& facts = set.facts;
  const auto wrong = [&](const auto&... text) { throw fail(ErrorCode::plugin, set.id, ": open returned ", text...); };
  if (facts.rows < 1) wrong(facts.rows, " rows; wanted 1 or more, or an error that says why there are none");
  if (facts.seq_length < 1) wrong("a seq_length of ", facts.seq_length, "; wanted 1 or more");
  const int64_t most = run.seq_length.value_or(model.max_position_embeddings);
  if (facts.seq_length > most && facts.seq_length > model.max_position_embeddings)
    throw fail(ErrorCode::config, set.id, ": its rows of ", facts.seq_length, " tokens are longer than the model's ",
               "max_position_embeddings ", model.max_position_embeddings, "\n   use shorter rows");
  if (facts.seq_length > most)
    throw fail(ErrorCode::config, set.id, ": its rows of ", facts.seq_length, " tokens are longer than those of the ",
               "run's dataset, ", most, "\n   use shorter rows, or a larger seq_length of the dataset");
  if (facts.documents && run.documents.known() && !run.documents.value())
    throw fail(ErrorCode::config, set.id, ": its rows have several documents each, and those of the run's dataset ",
               "have not, for which the run is planned\n   use a source with one document per row");
}

}  // namespace drivetrain
