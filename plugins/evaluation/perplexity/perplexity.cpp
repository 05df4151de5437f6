// How well a model predicts texts: the mean loss of a token, its exponential, and where bytes are known the same per
// byte.
#include <drivetrain/evaluation.h>
#include <drivetrain/services.h>

#include <cmath>
#include <numbers>

#include "rows.h"

namespace {

using namespace drivetrain;
using namespace drivetrain::perplexity;

class Perplexity : public Evaluation {
 public:
  struct Options {
    std::optional<PluginChoice> source;
    std::string part = "validation";
    std::optional<int64_t> iters;
    int64_t batch_size = 8;
    std::vector<std::string> files;
    std::optional<int64_t> seq_length, limit;
    std::optional<PluginChoice> tokenizer;
    std::string tokenizer_folder;
  };
  static OptionTable options() {
    using O = Options;
    return table<O>()
        .field("source", &O::source, "dataset that gives the tokens; or \"files\"")
        .plugin(Dataset::kKind)
        .inherits("seq_length")
        .field("part", &O::part, "which part of the source")
        .one_of({"validation", "train"})
        .field("iters", &O::iters, "batches of the source; null: every document of a source that can list them")
        .at_least(1)
        .field("batch_size", &O::batch_size, "rows of a batch of the source")
        .at_least(1)
        .field("files", &O::files, "text files, one document each, read whole")
        .path()
        .field("tokenizer", &O::tokenizer, "the model's tokenizer; null: its tokens are bytes")
        .plugin(Tokenizer::kKind)
        .field("tokenizer_folder", &O::tokenizer_folder,
               "where the tokenizer's files are, if its options do not say it")
        .path()
        .field("seq_length", &O::seq_length,
               "tokens per row; default: the source's, else those of the run or the model")
        .at_least(1)
        .field("limit", &O::limit, "first rows that are evaluated; null: all")
        .at_least(1);
  }

  Perplexity(const Options& options, const Services& services) : options_(options), services_(services) {}

  Value options_for(const std::string& file) const override {
    if (file.ends_with(".json") || file.ends_with(".jsonl")) return {};
    return Value::Object{{"files", Value::Array{file}}};
  }

  EvaluationFacts open(const RunFacts& run, const ModelFacts& model) override {
    if (options_.source.has_value() == !options_.files.empty())
      throw fail(ErrorCode::config, "evaluation/perplexity: ", options_.source ? "both" : "neither",
                 " source and files are given\n   name a dataset as \"source\", or text files as \"files\"");
    if (options_.source)
      open_source(run, model);
    else
      open_files(run, model);
    EvaluationFacts facts;
    facts.rows = std::min(rows_->count(), options_.limit.value_or(rows_->count()));
    facts.seq_length = rows_->seq_length(), facts.documents = rows_->documents();
    if (facts.rows == 0) throw fail(ErrorCode::config, "evaluation/perplexity: there is no text in ", origin_);
    tokens_are_bytes_ = !options_.tokenizer && is_byte_vocabulary(model);
    const bool counted = bytes_ && facts.rows == rows_->count();
    if (!counted && options_.tokenizer) bytes_ = bytes_of_rows(facts.rows, codec_for(model));
    if (!counted && tokens_are_bytes_) bytes_.reset();  // as many as tokens
    facts.notes = Value::Object{{"origin", origin_}, {"rows", facts.rows}, {"seq_length", facts.seq_length}};
    if (bytes_) facts.notes.set("bytes", *bytes_);
    return facts;
  }

  void read(int64_t first_row, int64_t rows, Batch& batch) override { rows_->read(first_row, rows, batch); }

  Value result(std::span<const RowScore> scores) override {
    double loss = 0, tokens = 0;
    for (const RowScore& score : scores) loss += score.loss, tokens += static_cast<double>(score.tokens);
    if (tokens == 0)
      throw fail(ErrorCode::io, "evaluation/perplexity: no label counts in ", origin_, "; every one is -100");
    Value figures = Value::Object{{"loss", loss / tokens}, {"perplexity", exponential(loss / tokens)}};
    const double bytes = bytes_ ? static_cast<double>(*bytes_) : tokens_are_bytes_ ? tokens : 0;
    if (bytes == 0) return figures;
    figures.set("bits_per_byte", loss / bytes / std::numbers::ln2);
    figures.set("byte_perplexity", exponential(loss / bytes));
    return figures;
  }

 private:
  // What the labels of the first rows stand for.
  int64_t bytes_of_rows(int64_t rows, const TextCodec& codec) const {
    int64_t bytes = 0;
    for (int64_t row = 0; row < rows; ++row) {
      Batch batch;
      rows_->read(row, 1, batch);
      const int64_t *labels = batch.labels_BS.const_data_ptr<int64_t>(),
                    *tokens = batch.tokens_BS.const_data_ptr<int64_t>(), count = batch.labels_BS.numel();
      std::vector<int32_t> ids;
      for (int64_t i = 0; i < count; ids.clear()) {  // labels that follow each other, and what is in front of them
        for (; i < count && labels[i] < 0; ++i) {
        }
        const int64_t first = i;
        for (; i < count && labels[i] >= 0; ++i) ids.push_back(static_cast<int32_t>(labels[i]));
        if (!ids.empty()) bytes += codec.bytes_of(ids, static_cast<int32_t>(tokens[first]));
      }
    }
    return bytes;
  }

  // A loss that is finite has a figure.
  static double exponential(double x) { return std::exp(std::min(x, 700.0)); }

  TextCodec codec_for(const ModelFacts& model) const {
    return {"evaluation/perplexity", {options_.tokenizer, options_.tokenizer_folder}, model, services_};
  }

  void open_source(const RunFacts& run, const ModelFacts& model) {
    origin_ = concat("dataset/", options_.source->type, ", part ", options_.part);
    const auto dataset = services_.plugins->create<Dataset>(*options_.source);
    RunFacts own = run;
    own.train_batch_size = options_.batch_size, own.micro_batch_size = options_.batch_size, own.accumulation = 1;
    const DatasetFacts facts = dataset->open(own, model);
    const DataPart part = options_.part == "train" ? DataPart::train : DataPart::validation;
    if (part == DataPart::validation && !facts.validation)
      throw fail(ErrorCode::config, "evaluation/perplexity: dataset/", options_.source->type,
                 " has no validation part\n   set part to \"train\", or use a source that has one");
    if (!options_.iters) return open_documents(dataset, dataset->documents(part), facts);
    if (part == DataPart::train && facts.steps >= 0 && *options_.iters > facts.steps)
      throw fail(ErrorCode::config, "evaluation/perplexity: iters is ", *options_.iters, ", and the source has ",
                 facts.steps, " batches of ", options_.batch_size, " rows\n   set iters to that or less");
    rows_ = rows_of_batches(dataset, facts, part, *options_.iters, options_.batch_size);
  }

  void open_documents(const std::shared_ptr<Dataset>& dataset, const Documents* documents, const DatasetFacts& facts) {
    if (!documents)
      throw fail(ErrorCode::config, "evaluation/perplexity: dataset/", options_.source->type,
                 " cannot list its documents, so that nobody knows what all of it is\n   set iters, the number of its ",
                 "batches of ", options_.batch_size, " rows");
    rows_ = rows_of_documents({dataset, documents}, options_.seq_length.value_or(facts.seq_length));
  }

  void open_files(const RunFacts& run, const ModelFacts& model) {
    origin_ = options_.files.size() == 1 ? options_.files[0] : concat(options_.files.size(), " files");
    const auto texts = std::make_shared<TextFiles>(options_.files, codec_for(model));
    bytes_ = texts->bytes();
    const int64_t most = run.seq_length.value_or(model.max_position_embeddings);
    rows_ = rows_of_documents(texts, options_.seq_length.value_or(most));
  }

  const Options options_;
  const Services& services_;
  std::string origin_;  // for messages
  std::unique_ptr<Rows> rows_;
  std::optional<int64_t> bytes_;  // of all rows, where they were counted
  bool tokens_are_bytes_ = false;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Evaluation, "perplexity", Perplexity)
