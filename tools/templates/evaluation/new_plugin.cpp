// How well a model counts: rows of ascending bytes. Gives the mean loss of a token and the share of rows below a limit.
#include <drivetrain/evaluation.h>
#include <drivetrain/services.h>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

namespace {

using namespace drivetrain;

class NewPlugin : public Evaluation {
 public:
  struct Options {
    int64_t rows = 16, seq_length = 32;
    double limit = 1;
  };
  static OptionTable options() {
    return table<Options>()
        .field("rows", &Options::rows, "how many rows are read")
        .at_least(1)
        .field("seq_length", &Options::seq_length, "tokens per row, at most those of the run and the model")
        .at_least(2)
        .field("limit", &Options::limit, "mean loss of a token, in nats, below which a row is solved")
        .at_least(0);
  }
  NewPlugin(const Options& options, const Services&) : options_(options) {}

  EvaluationFacts open(const RunFacts& run, const ModelFacts& model) override {
    vocabulary_ = model.vocab_size;
    EvaluationFacts facts;
    facts.rows = options_.rows, facts.by_row = true;
    facts.seq_length = std::min(options_.seq_length, run.seq_length.value_or(options_.seq_length));
    if (model.max_position_embeddings > 0) facts.seq_length = std::min(facts.seq_length, model.max_position_embeddings);
    facts.notes = Value::Object{{"rows", facts.rows}, {"seq_length", facts.seq_length}};
    length_ = facts.seq_length;
    return facts;
  }

  // A function of the row alone, in any order and any number of times.
  void read(int64_t first_row, int64_t rows, Batch& batch) override {
    batch.tokens_BS = at::empty({rows, length_}, at::TensorOptions(at::kLong));
    batch.labels_BS = at::empty({rows, length_}, at::TensorOptions(at::kLong));
    for (int64_t i = 0; i < rows * length_; ++i) {
      const int64_t number = 7 * (first_row + i / length_) + i % length_;
      batch.tokens_BS.mutable_data_ptr<int64_t>()[i] = number % vocabulary_;
      batch.labels_BS.mutable_data_ptr<int64_t>()[i] = (number + 1) % vocabulary_;
    }
  }

  Value result(std::span<const RowScore> scores) override {
    double loss = 0, tokens = 0, solved = 0;
    for (const RowScore& score : scores) {
      const auto count = static_cast<double>(score.tokens);
      loss += score.loss, tokens += count;
      solved += score.loss < options_.limit * count ? 1 : 0;
    }
    const double rows = static_cast<double>(scores.size()), share = solved / rows;
    return Value::Object{
        {"solved", share}, {"solved_stderr", std::sqrt(share * (1 - share) / rows)}, {"loss", loss / tokens}};
  }

 private:
  const Options options_;
  int64_t vocabulary_ = 0, length_ = 0;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Evaluation, "new_plugin", NewPlugin)
