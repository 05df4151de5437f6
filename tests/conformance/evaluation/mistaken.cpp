// Rows of a counter's digits, with a mistake that can be asked for.
#include <drivetrain/evaluation.h>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>

#include <drivetrain/services.h>

namespace {

using namespace drivetrain;

class Mistaken : public Evaluation {
 public:
  struct Options {
    std::string mistake = "none";
  };
  static OptionTable options() {
    return table<Options>()
        .field("mistake", &Options::mistake, "what is wrong")
        .one_of({"none", "gives_32_bits", "one_label_short", "knows_more_tokens", "labels_below_zero", "counts_nothing",
                 "labels_are_the_tokens", "counts_its_calls", "counts_rows_from_the_request", "gives_one_buffer_again",
                 "has_rows_of_its_rank", "has_more_rows_with_more_ranks", "is_as_long_as_the_model", "returns_a_text",
                 "returns_infinity", "names_with_slashes", "error_of_nothing", "adds_scores_up",
                 "takes_files_by_other_options"});
  }
  Mistaken(const Options& options, const Services& services) : options_(options), services_(services) {}

  Value options_for(const std::string& file) const override {
    if (is("takes_files_by_other_options")) return Value::Object{{"file", file}};
    return {};
  }

  EvaluationFacts open(const RunFacts& run, const ModelFacts& model) override {
    vocabulary_ = model.vocab_size;
    length_ = std::min<int64_t>(40, run.seq_length.value_or(model.max_position_embeddings));
    if (is("is_as_long_as_the_model")) length_ = model.max_position_embeddings;
    EvaluationFacts facts;
    facts.rows = 5, facts.seq_length = length_;
    if (is("has_more_rows_with_more_ranks")) facts.rows *= run.world_size;
    return facts;
  }

  void read(int64_t first_row, int64_t rows, Batch& batch) override {
    if (!is("gives_one_buffer_again") || !tokens_.defined() || tokens_.size(0) != rows)
      tokens_ = empty(rows, length_), labels_ = empty(rows, length_ - (is("one_label_short") ? 1 : 0));
    int64_t shift = is("has_rows_of_its_rank") ? services_.rank : 0;
    if (is("counts_its_calls")) shift += calls_++;
    fill(tokens_, (is("counts_rows_from_the_request") ? 0 : first_row), shift, 0);
    fill(labels_, (is("counts_rows_from_the_request") ? 0 : first_row), shift, is("labels_are_the_tokens") ? 0 : 1);
    if (is("knows_more_tokens")) tokens_.select(1, 3).fill_(vocabulary_);
    if (is("labels_below_zero")) labels_.select(1, 3).fill_(-1);
    if (is("counts_nothing")) labels_.fill_(-100);
    batch.tokens_BS = is("gives_32_bits") ? tokens_.to(at::kInt) : tokens_;
    batch.labels_BS = labels_;
  }

  Value result(std::span<const RowScore> scores) override {
    if (!is("adds_scores_up")) loss_ = tokens_counted_ = 0;
    for (const RowScore& score : scores) loss_ += score.loss, tokens_counted_ += static_cast<double>(score.tokens);
    double figure = loss_ / tokens_counted_;
    if (is("adds_scores_up")) figure = loss_;
    if (is("returns_infinity")) figure = std::numeric_limits<double>::infinity();
    Value figures = Value::object();
    figures.set(is("names_with_slashes") ? "loss/mean" : "loss", is("returns_a_text") ? Value("low") : Value(figure));
    if (is("error_of_nothing")) figures.set("acc_stderr", 0.1);
    return figures;
  }

 private:
  bool is(const char* mistake) const { return options_.mistake == mistake; }
  static at::Tensor empty(int64_t rows, int64_t S) { return at::empty({rows, S}, at::TensorOptions(at::kLong)); }

  void fill(const at::Tensor& ids, int64_t first, int64_t shift, int64_t later) const {
    const int64_t rows = ids.size(0), S = ids.size(1);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t s = 0; s < S; ++s)
        ids.mutable_data_ptr<int64_t>()[i * S + s] = ((first + i) * 37 + (s + later) * 5 + shift) % vocabulary_;
  }

  const Options options_;
  const Services& services_;
  int64_t vocabulary_ = 0, length_ = 0, calls_ = 0;
  double loss_ = 0, tokens_counted_ = 0;
  at::Tensor tokens_, labels_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Evaluation, "mistaken", Mistaken)
