// Figures of the model on data of their own: the perplexity of texts, multiple choice. An evaluation gives rows of
// tokens with labels, gets the loss of each, and computes figures from these. The runtime runs the rows through the
// model: during the training, in the steps that the section `eval` names, or by `drivetrain evaluate`. Rows are divided
// over the ranks that read different data. Losses come back in the order of the rows, so that figures do not depend
// on the number of ranks. Thread: main.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <drivetrain/plan_context.h>
#include <drivetrain/plugin.h>
#include <drivetrain/step_context.h>

DRIVETRAIN_CONTRACT(evaluation)

namespace drivetrain {

struct EvaluationFacts {
  int64_t rows = 0;        // at least 1
  int64_t seq_length = 0;  // S of every row; at most RunFacts::seq_length where that is known
  bool by_row = false;  // the loss of every single row is wanted; false: sums of several rows will do, and are faster
  bool documents =
      false;    // rows may have several documents (Batch::cu_seqlens); only where RunFacts::documents is true
  Value notes;  // an object: what was read, what was left out; for the log and the result file
};

// Of one row, or of several that follow one another where EvaluationFacts::by_row is false.
struct RowScore {
  double loss = 0;     // sum of the negative log-likelihoods of all labels that count, in nats
  int64_t tokens = 0;  // how many labels count
};

// `drivetrain evaluate` tells an evaluation of texts its tokenizer by two options: `tokenizer`, a PluginChoice of that
// kind, and `tokenizer_folder`, a path for Tokenizer::open. An evaluation that reads no texts has neither.
class DRIVETRAIN_API Evaluation : public Plugin {
 public:
  static constexpr const char* kKind = "evaluation";
  ~Evaluation() override;
  // Which options evaluate a file that a user names without any: an object; null if this is no file for it. By the
  // file's name alone. Called on an object with default options that is not opened.
  virtual Value options_for(const std::string& /* file */) const { return {}; }
  // Called once, before all calls below. During a training between two rounds of `plan` (plugin.h), when the batch
  // sizes and the sequence length of `run` are known; otherwise neither need be. Reads and checks the data. The same on
  // all ranks. Throws Error(io) for unreadable data, Error(config) for data that do not fit the model or the options.
  virtual EvaluationFacts open(const RunFacts& run, const ModelFacts& model) = 0;
  // Rows [first_row, first_row + rows), in any order and any number of times: a function of the row alone. Sets
  // tokens_BS and labels_BS: [rows, S], int64, contiguous, on the CPU; the label -100 does not count. May set
  // cu_seqlens and position_ids_BS. The tensors are the runtime's from then on. May throw Error(io).
  virtual void read(int64_t first_row, int64_t rows, Batch& batch) = 0;
  // Called after all rows were computed, on every rank with equal arguments: the scores of all rows in their order.
  // Returns the figures: an object of finite numbers, the one that says most first, each time with the same names.
  // NAME_stderr is the standard error of NAME. A name has no slash.
  virtual Value result(std::span<const RowScore> scores) = 0;
};

}  // namespace drivetrain
