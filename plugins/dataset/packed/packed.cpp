// Documents of another dataset, arranged into rows of one length. Where a row has several, the batch says where each
// begins, and positions start again there.
#include <drivetrain/dataset.h>
#include <drivetrain/log.h>
#include <drivetrain/services.h>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "row_order.h"

namespace {

using namespace drivetrain;
using packed::Arrangement;
using packed::Method;
using packed::Piece;
using packed::RowOrder;

constexpr int64_t kIgnored = -100;
constexpr int64_t kPaddingPiece =
    128;  // positions of padding that attend to each other: short, so that it costs little
constexpr int64_t kCountedAtOpen = 1 << 22;  // documents: the start of a run does not wait for more

const std::map<std::string, Method> kMethods = {{"best_fit", Method::best_fit},
                                                {"fixed", Method::fixed},
                                                {"length_groups", Method::length_groups},
                                                {"none", Method::none}};

class Packed : public Dataset {
 public:
  struct Options {
    PluginChoice source;
    int64_t seq_length = 0;
    std::string method = "best_fit";
    int64_t pad_token = 0;
    std::optional<int64_t> epochs;
    int64_t window = 65536;
    std::optional<int64_t> seed;
  };
  static OptionTable options() {
    return table<Options>()
        .field("source", &Options::source, "the dataset whose documents are packed")
        .required()
        .plugin(Dataset::kKind)
        .inherits("seq_length")
        .field("seq_length", &Options::seq_length, "positions per row")
        .required()
        .range(1, 1 << 30)
        .field("method", &Options::method, "how documents become rows")
        .one_of({"best_fit", "fixed", "length_groups", "none"})
        .field("pad_token", &Options::pad_token, "the token where a row has no document")
        .at_least(0)
        .field("epochs", &Options::epochs, "how many times the documents may be used; default: any number")
        .at_least(1)
        .field("window", &Options::window, "documents that are packed together")
        .range(1, 1 << 30)
        .field("seed", &Options::seed, "of the order; default: the run's");
  }

  Packed(const Options& options, const Services& services)
      : options_(options), services_(services), method_(kMethods.at(options.method)) {}

  DatasetFacts open(const RunFacts& run, const ModelFacts& model) override {
    if (!services_.plugins) throw fail(ErrorCode::internal, "dataset/packed: there is no registry to make a source of");
    batch_rows_ = run.train_batch_size;
    source_ = services_.plugins->create<Dataset>(options_.source);
    const DatasetFacts source = source_->open(run, model);
    train_documents_ = source_->documents(DataPart::train);
    validation_documents_ = source_->documents(DataPart::validation);
    train_ = order(DataPart::train), validation_ = order(DataPart::validation);
    if (!train_)
      throw fail(ErrorCode::config, "dataset/packed: dataset/", options_.source.type,
                 " has no single documents that could be packed. Use it without packed, or another source");
    if (options_.pad_token >= model.vocab_size)
      throw fail(ErrorCode::config, "dataset/packed: pad_token is ", options_.pad_token,
                 ", the model's tokens are 0 to ", model.vocab_size - 1, ". Set pad_token to one of them");
    DatasetFacts facts;
    facts.seq_length = options_.seq_length;
    facts.steps = options_.epochs ? available_steps() : -1;
    facts.validation = validation_ != nullptr;
    facts.documents = several();
    facts.begin_tokens = source.begin_tokens, facts.end_tokens = source.end_tokens;
    facts.notes = notes(source);
    tell(run.train_steps);
    return facts;
  }

  void read(const BatchRequest& request, Batch& batch) override {
    const bool training = request.part == DataPart::train;
    if (!training && !validation_)
      throw fail(ErrorCode::config, "dataset/packed: dataset/", options_.source.type,
                 " has no documents for validation; set eval_interval to 0");
    RowOrder& order = training ? *train_ : *validation_;
    const Documents& documents = *documents_of(request.part);
    const int64_t first = (request.step - 1) * batch_rows_ + request.first_row;
    Rows rows(request.rows, options_.seq_length);
    for (int64_t i = 0; i < request.rows; ++i) {
      order.row(first + i, pieces_);
      for (const Piece& piece : pieces_) rows.add(documents, piece);
      rows.pad(options_.pad_token);
    }
    if (training) tell_epoch(request.step, order.epoch(first + request.rows - 1));
    rows.give(batch, several());
  }

  std::string origin(const BatchRequest& request) override {
    const bool training = request.part == DataPart::train;
    (training ? *train_ : *validation_).row((request.step - 1) * batch_rows_ + request.first_row, pieces_);
    if (pieces_.empty()) return {};
    const std::string first = documents_of(request.part)->origin(pieces_.front().document);
    const int64_t more = static_cast<int64_t>(pieces_.size()) - 1;
    return first.empty() || more == 0 ? first : concat(first, " and ", more, " more");
  }

 private:
  // A batch that is being filled.
  class Rows {
   public:
    Rows(int64_t rows, int64_t S) : S_(S) {
      for (at::Tensor* t : {&tokens_BS_, &labels_BS_, &positions_BS_})
        *t = at::empty({rows, S}, at::TensorOptions(at::kLong));
      tokens_ = tokens_BS_.mutable_data_ptr<int64_t>(), labels_ = labels_BS_.mutable_data_ptr<int64_t>();
      positions_ = positions_BS_.mutable_data_ptr<int64_t>();
    }
    void add(const Documents& documents, const Piece& piece) {
      documents.read(piece.document, piece.first, piece.count, tokens_ + at_, labels_ + at_);
      documents_ += piece.first == 0;
      end_piece(piece.count);
    }
    // To the end of the row.
    void pad(int64_t token) {
      const int64_t rest = (S_ - at_ % S_) % S_;
      std::fill_n(tokens_ + at_, rest, token);
      std::fill_n(labels_ + at_, rest, kIgnored);
      padding_ += rest;
      for (int64_t left = rest; left > 0; left -= kPaddingPiece) end_piece(std::min(left, kPaddingPiece));
    }
    void give(Batch& batch, bool boundaries) {
      batch.tokens_BS = tokens_BS_, batch.labels_BS = labels_BS_;
      batch.documents = documents_, batch.padding = padding_;
      if (boundaries) batch.cu_seqlens = std::move(cu_seqlens_), batch.position_ids_BS = positions_BS_;
    }

   private:
    void end_piece(int64_t count) {
      std::iota(positions_ + at_, positions_ + at_ + count, int64_t{0});
      cu_seqlens_.push_back(at_ += count);
    }

    const int64_t S_;
    at::Tensor tokens_BS_, labels_BS_, positions_BS_;
    int64_t *tokens_, *labels_, *positions_;
    int64_t at_ = 0, documents_ = 0, padding_ = 0;
    std::vector<int64_t> cu_seqlens_ = {0};
  };

  const Documents* documents_of(DataPart part) const {
    return part == DataPart::train ? train_documents_ : validation_documents_;
  }

  bool several() const { return method_ == Method::best_fit || method_ == Method::fixed; }

  std::unique_ptr<RowOrder> order(DataPart part) const {
    const Documents* documents = documents_of(part);
    if (!documents || documents->count() == 0) return nullptr;
    const uint64_t seed = options_.seed ? static_cast<uint64_t>(*options_.seed) : services_.seed;
    auto order = std::make_unique<RowOrder>(
        *documents, Arrangement{method_, options_.seq_length, options_.window, batch_rows_, seed});
    order->count_up_to(options_.epochs && part == DataPart::train ? documents->count() : kCountedAtOpen);
    return order;
  }

  int64_t available_steps() const { return train_->counted().rows * *options_.epochs / batch_rows_; }

  double fill_percent(const RowOrder::Counted& c) const {
    const double places = static_cast<double>(c.rows) * static_cast<double>(options_.seq_length);
    return std::round(1e4 * static_cast<double>(c.positions) / std::max(1.0, places)) / 1e2;
  }

  Value part_notes(const RowOrder& order, DataPart part) const {
    const RowOrder::Counted& c = order.counted();
    Value note = Value::object();
    note.set("documents", documents_of(part)->count());
    if (!order.counted_all()) note.set("counted_documents", c.documents);  // what follows is of these
    note.set("tokens", c.positions);
    note.set("rows", c.rows);
    note.set("fill_percent", fill_percent(c));
    note.set("cut_documents", c.cut);
    return note;
  }

  Value notes(const DatasetFacts& source) const {
    Value note = Value::object();
    note.set("method", options_.method);
    note.set("train", part_notes(*train_, DataPart::train));
    if (validation_) note.set("validation", part_notes(*validation_, DataPart::validation));
    note.set("source", source.notes);
    return note;
  }

  void tell(int64_t train_steps) const {
    const RowOrder::Counted& c = train_->counted();
    std::string line =
        concat("dataset/packed: ", train_->counted_all() ? "" : "the first ", c.documents, " documents, ", c.positions,
               " tokens: ", c.rows, " rows of ", options_.seq_length, ", ", fill_percent(c), " % full");
    if (c.cut > 0) line += concat("; ", c.cut, method_ == Method::fixed ? " cut" : " longer than a row and cut");
    if (train_->counted_all())
      line +=
          concat("; ", train_steps, " steps are ",
                 std::round(1e2 * static_cast<double>(train_steps * batch_rows_) / static_cast<double>(c.rows)) / 1e2,
                 " epochs");
    services_.log.info(line);
  }

  void tell_epoch(int64_t step, int64_t epoch) {
    if (epoch > epoch_) services_.log.info(concat("dataset/packed: step ", step, " reaches epoch ", epoch + 1));
    epoch_ = std::max(epoch_, epoch);
  }

  const Options options_;
  const Services& services_;
  const Method method_;
  std::shared_ptr<Dataset> source_;
  const Documents *train_documents_ = nullptr, *validation_documents_ = nullptr;  // the source's
  std::unique_ptr<RowOrder> train_, validation_;  // with views of the source's documents
  std::vector<Piece> pieces_;
  int64_t batch_rows_ = 0, epoch_ = 0;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Dataset, "packed", Packed)
