// Rows of hashed numbers, with a mistake that can be asked for.
#include <drivetrain/dataset.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <atomic>

#include <drivetrain/services.h>

namespace {

using namespace drivetrain;

class Mistaken : public Dataset {
 public:
  struct Options {
    int64_t seq_length = 16;
    std::string mistake = "none";
  };
  static OptionTable options() {
    return table<Options>()
        .field("seq_length", &Options::seq_length, "tokens per row")
        .field("mistake", &Options::mistake, "what is wrong")
        .one_of({"none", "counts_its_calls", "counts_rows_from_the_request", "has_rows_of_its_rank",
                 "depends_on_the_micro_batch", "gives_one_buffer_again", "validation_moves_on", "one_label_short",
                 "gives_32_bits", "has_columns_in_rows", "knows_more_tokens", "labels_below_zero",
                 "differs_when_opened_again", "counts_and_shows_it", "counts_and_shows_half", "hides_its_documents",
                 "has_documents_over_rows", "counts_documents_from_the_request", "has_positions_beyond_the_row"});
  }
  Mistaken(const Options& options, const Services& services) : options_(options), rank_(services.rank) {}

  DatasetFacts open(const RunFacts& run, const ModelFacts& model) override {
    static std::atomic<int64_t> opened = 0;
    vocabulary_ = model.vocab_size;
    if (is("differs_when_opened_again")) seed_ = ++opened;
    if (is("has_rows_of_its_rank")) seed_ = rank_;
    if (is("depends_on_the_micro_batch")) seed_ = run.micro_batch_size;
    DatasetFacts facts;
    facts.seq_length = options_.seq_length;
    facts.validation = true;
    facts.documents = !is("hides_its_documents");
    facts.notes = Value::object();
    return facts;
  }

  void read(const BatchRequest& request, Batch& batch) override {
    if (is("counts_its_calls")) ++seed_;
    if (is("counts_and_shows_it") || is("counts_and_shows_half")) {
      seed_ = 100 * (reads_ / 3) + rows_ / 6;
      ++reads_, rows_ += request.rows;
    }
    if (is("validation_moves_on") && request.part == DataPart::validation) ++seed_;
    if (!is("gives_one_buffer_again") || !tokens_.defined() || tokens_.size(0) != request.rows) {
      tokens_ = empty(request.rows, options_.seq_length);
      labels_ = empty(request.rows, options_.seq_length - (is("one_label_short") ? 1 : 0));
    }
    fill(tokens_, request, 0), fill(labels_, request, 1);
    if (is("knows_more_tokens")) tokens_.select(1, 3).fill_(vocabulary_);
    if (is("labels_below_zero")) labels_.select(1, 3).fill_(-1);
    batch.tokens_BS = tokens_, batch.labels_BS = labels_;
    set_documents(request, batch);
    if (is("gives_32_bits")) batch.tokens_BS = tokens_.to(at::kInt);
    if (is("has_columns_in_rows")) batch.tokens_BS = tokens_.t().contiguous().t();
  }

  void state(StateVisitor& visitor) override {
    if (is("counts_and_shows_it") || is("counts_and_shows_half")) visitor.integer("reads", reads_);
    if (is("counts_and_shows_it")) visitor.integer("rows", rows_);
  }

 private:
  bool is(const char* mistake) const { return options_.mistake == mistake; }
  static at::Tensor empty(int64_t rows, int64_t S) { return at::empty({rows, S}, at::TensorOptions(at::kLong)); }

  // Two documents in each row, the second at another place in each.
  void set_documents(const BatchRequest& request, Batch& batch) const {
    const int64_t S = options_.seq_length, shift = is("counts_documents_from_the_request") ? 0 : request.first_row;
    batch.position_ids_BS = empty(request.rows, S);
    for (int64_t i = 0; i < request.rows; ++i) {
      const int64_t second = 1 + (shift + i) % (S - 1);
      if (i == 0 || !is("has_documents_over_rows")) batch.cu_seqlens.push_back(i * S);
      batch.cu_seqlens.push_back(i * S + second);
      for (int64_t s = 0; s < S; ++s)
        batch.position_ids_BS.mutable_data_ptr<int64_t>()[i * S + s] = s < second ? s : s - second;
    }
    batch.cu_seqlens.push_back(request.rows * S);
    if (is("has_positions_beyond_the_row")) batch.position_ids_BS.add_(1);
  }

  // What comes after position s is its label.
  void fill(const at::Tensor& ids, const BatchRequest& request, int64_t shift) const {
    const int64_t rows = ids.size(0), S = ids.size(1);
    const int64_t first = is("counts_rows_from_the_request") ? 0 : request.first_row;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t s = 0; s < S; ++s) {
        uint64_t x = static_cast<uint64_t>(seed_);
        for (const int64_t part : {static_cast<int64_t>(request.part), request.step, first + i, s + shift})
          x = (x ^ static_cast<uint64_t>(part + 1)) * 0x9e3779b97f4a7c15u, x ^= x >> 29;
        ids.mutable_data_ptr<int64_t>()[i * S + s] = static_cast<int64_t>(x % static_cast<uint64_t>(vocabulary_));
      }
  }

  const Options options_;
  const int64_t rank_;
  int64_t vocabulary_ = 0, seed_ = 0, reads_ = 0, rows_ = 0;
  at::Tensor tokens_, labels_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Dataset, "mistaken", Mistaken)
