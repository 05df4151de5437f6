// Text as bytes: token = byte, vocabulary 256, no tokenizer. Training rows are windows at random positions of the
// training stream, a pure function of (seed, step, row); validation rows are windows, spread evenly, of documents never
// trained on.
#include <drivetrain/dataset.h>
#include <drivetrain/random.h>
#include <drivetrain/services.h>

#include <ATen/ops/empty.h>

#include <cmath>
#include <cstdio>
#include <numeric>

#include "documents.h"
#include "stream_documents.h"

namespace {

using namespace drivetrain;

constexpr int64_t kVocabulary = 256;

class Text : public Dataset {
 public:
  struct Options {
    std::vector<std::string> files;
    int64_t seq_length = 0;
    std::optional<int64_t> seed;
  };
  static OptionTable options() {
    return table<Options>()
        .field("files", &Options::files, "files, folders and globs (* ? **); one document per file")
        .required()
        .path()
        .field("seq_length", &Options::seq_length, "tokens (bytes) per row")
        .required()
        .at_least(1)
        .field("seed", &Options::seed, "of the split and of the training positions; default: the run's");
  }

  Text(const Options& options, const Services& services)
      : options_(options), seed_(options.seed.value_or(static_cast<int64_t>(services.seed))) {}

  DatasetFacts open(const RunFacts& run, const ModelFacts& model) override {
    if (model.vocab_size < kVocabulary)
      throw fail(ErrorCode::config,
                 "dataset/text: tokens are bytes, so the model needs vocab_size 256 or more; it has ", model.vocab_size,
                 ". Set model.params.vocab_size to 256");
    if (options_.files.empty())
      throw fail(ErrorCode::config, "dataset/text: files is empty; name files, folders or globs");
    train_ = {}, validation_ = {};
    const auto documents = text::find_documents(options_.files);
    text::read_documents(documents, seed_, train_, validation_);
    check_length(documents.size());
    rows_per_batch_ = run.train_batch_size;
    DatasetFacts facts;
    facts.seq_length = options_.seq_length;
    facts.validation = windows(validation_) > 0;
    facts.notes = notes(documents.size());
    return facts;
  }

  void read(const BatchRequest& request, Batch& batch) override {
    const int64_t S = options_.seq_length;
    const bool training = request.part == DataPart::train;
    if (!training && windows(validation_) == 0)
      throw fail(ErrorCode::config, "dataset/text: the validation part is shorter than one row of ", S + 1, " bytes");
    batch.tokens_BS = at::empty({request.rows, S}, at::TensorOptions(at::kLong));
    batch.labels_BS = at::empty({request.rows, S}, at::TensorOptions(at::kLong));
    int64_t *tokens = batch.tokens_BS.mutable_data_ptr<int64_t>(),
            *labels = batch.labels_BS.mutable_data_ptr<int64_t>();
    for (int64_t i = 0; i < request.rows; ++i) {
      const int64_t row = request.first_row + i;
      const int64_t at = training ? random_position(request.step, row) : window_position(request.step, row);
      const auto* bytes = reinterpret_cast<const unsigned char*>((training ? train_ : validation_).bytes.data()) + at;
      for (int64_t s = 0; s < S; ++s) tokens[i * S + s] = bytes[s], labels[i * S + s] = bytes[s + 1];
    }
  }

  const Documents* documents(DataPart part) const override {
    const text::StreamDocuments& found = part == DataPart::train ? train_documents_ : validation_documents_;
    return found.count() > 0 ? &found : nullptr;
  }

 private:
  // The high half of (64 random bits) * (number of positions).
  int64_t random_position(int64_t step, int64_t row) const {
    const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
    const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
    const auto seed = static_cast<uint64_t>(seed_);
    const auto words = philox({low(step), high(step), low(row), high(row)}, {low(seed), high(seed)});
    __extension__ using Wide = unsigned __int128;
    const uint64_t bits = uint64_t{words[1]} << 32 | words[0];
    const auto positions = static_cast<uint64_t>(size(train_) - options_.seq_length);
    return static_cast<int64_t>((Wide{bits} * positions) >> 64);
  }

  // Windows of S tokens in a fixed order that any number of rows covers evenly:
  // steps of about the golden section of their number, without a common divisor with it,
  // so that each comes once before the first comes again.
  int64_t window_position(int64_t batch, int64_t row) const {
    const int64_t count = windows(validation_);
    int64_t stride = std::max<int64_t>(1, std::llround(static_cast<double>(count) * 0.618));
    while (std::gcd(stride, count) != 1) ++stride;
    return ((batch - 1) * rows_per_batch_ + row) * stride % count * options_.seq_length;
  }

  static int64_t size(const text::Stream& stream) { return static_cast<int64_t>(stream.bytes.size()); }
  int64_t windows(const text::Stream& stream) const {
    return std::max<int64_t>(0, size(stream) - 1) / options_.seq_length;
  }

  void check_length(size_t documents) const {
    if (size(train_) > options_.seq_length) return;
    throw fail(ErrorCode::config, "dataset/text: too little text: the training part of ", documents, " files has ",
               size(train_), " bytes, a row needs seq_length + 1 = ", options_.seq_length + 1,
               ". Name more files or set seq_length to less");
  }

  static Value part_notes(const text::Stream& stream) {
    char digest[20];
    std::snprintf(digest, sizeof digest, "%016llx", static_cast<unsigned long long>(hash_name(stream.bytes)));
    Value note = Value::object();
    note.set("files", static_cast<int64_t>(stream.files.size()));
    note.set("bytes", size(stream));
    note.set("fnv1a", digest);
    return note;
  }

  // With the held-out paths in full, so that a script outside can make the same split.
  Value notes(size_t documents) const {
    Value note = Value::object();
    note.set("files", static_cast<int64_t>(documents));
    note.set("split_seed", seed_);
    note.set("train", part_notes(train_));
    Value& held_out = note.set("validation", part_notes(validation_));
    Value::Array paths(validation_.files.begin(), validation_.files.end());
    held_out.set("paths", Value(std::move(paths)));
    return note;
  }

  const Options options_;
  const int64_t seed_;
  int64_t rows_per_batch_ = 0;
  text::Stream train_, validation_;
  const text::StreamDocuments train_documents_{train_}, validation_documents_{validation_};
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Dataset, "text", Text)
