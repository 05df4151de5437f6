// Rows that a model can learn by copying: a random part, repeated to the end of the row. Only the repeats count.
//
// A row is a function of seed, part, step and its number, so a run that goes on needs no state, and ranks read
// different rows by construction.
#include <drivetrain/dataset.h>
#include <drivetrain/random.h>
#include <drivetrain/services.h>

#include <ATen/ops/empty.h>

namespace {

using namespace drivetrain;

class NewPlugin : public Dataset {
 public:
  struct Options {
    int64_t seq_length = 64, period = 16;
  };
  static OptionTable options() {
    return table<Options>()
        .field("seq_length", &Options::seq_length, "tokens per row")
        .at_least(2)
        .field("period", &Options::period, "length of the part that is repeated")
        .at_least(1);
  }
  NewPlugin(const Options& options, const Services& services) : options_(options), seed_(services.seed) {}

  DatasetFacts open(const RunFacts&, const ModelFacts& model) override {
    if (options_.period >= options_.seq_length)
      throw fail(ErrorCode::config, "dataset/new_plugin: period ", options_.period, " leaves nothing to repeat in ",
                 options_.seq_length, " tokens (seq_length); make it smaller");
    vocabulary_ = model.vocab_size;
    DatasetFacts facts;
    facts.seq_length = options_.seq_length, facts.validation = true;
    facts.notes = Value::Object{{"period", options_.period}};
    return facts;
  }

  void read(const BatchRequest& request, Batch& batch) override {
    const int64_t S = options_.seq_length;
    batch.tokens_BS = at::empty({request.rows, S}, at::TensorOptions(at::kLong));
    batch.labels_BS = at::empty({request.rows, S}, at::TensorOptions(at::kLong));
    int64_t* tokens = batch.tokens_BS.mutable_data_ptr<int64_t>();
    int64_t* labels = batch.labels_BS.mutable_data_ptr<int64_t>();
    for (int64_t row = 0; row < request.rows; ++row)
      for (int64_t s = 0; s < S; ++s) {
        *tokens++ = token(request, request.first_row + row, s);
        // The label is the next token; -100 does not count.
        *labels++ = s + 1 < options_.period ? -100 : token(request, request.first_row + row, s + 1);
      }
  }

 private:
  int64_t token(const BatchRequest& request, int64_t row, int64_t position) const {
    const uint64_t site = hash_name(request.part == DataPart::train ? "train" : "validation") ^ seed_;
    const auto low = [](auto x) { return static_cast<uint32_t>(x); };
    const auto bits = philox({low(position % options_.period), low(row), low(request.step), low(request.step >> 32)},
                             {low(site), low(site >> 32)});
    return static_cast<int64_t>(bits[0]) % vocabulary_;
  }

  const Options options_;
  const uint64_t seed_;
  int64_t vocabulary_ = 0;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Dataset, "new_plugin", NewPlugin)
