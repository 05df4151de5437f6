// Lines of a text file as rows of bytes. See README.md.
#include <drivetrain/dataset.h>
#include <drivetrain/error.h>
#include <drivetrain/random.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/files/read_file.h>
#include <drivetrain/toolkit/permutation.h>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace drivetrain;

constexpr uint64_t kMostBytes = uint64_t{1} << 32;
constexpr int64_t kIgnored = -100, kBytes = 256;

class Lines : public Dataset {
 public:
  struct Options {
    std::string file;
    int64_t seq_length = 128;
  };
  static OptionTable options() {
    return table<Options>()
        .field("file", &Options::file, "the text file, relative to the config")
        .required()
        .path()
        .field("seq_length", &Options::seq_length, "tokens per row; longer lines are cut")
        .at_least(2);
  }
  Lines(const Options& options, const Services& services) : options_(options), seed_(services.seed) {}

  DatasetFacts open(const RunFacts& run, const ModelFacts& model) override {
    if (model.vocab_size < kBytes)
      throw fail(ErrorCode::config, "dataset/lines: tokens are bytes, and the model has ", model.vocab_size,
                 " tokens (vocab_size); it needs ", kBytes);
    const auto text = read_file(options_.file, kMostBytes, ErrorCode::io);
    if (!text) throw fail(ErrorCode::io, "dataset/lines: there is no file ", options_.file);
    text_ = *text;
    cut_lines();
    if (train_.empty() || validation_.empty())
      throw fail(ErrorCode::config, "dataset/lines: ", options_.file,
                 " has too few lines of two bytes or more; at least 20 are needed");
    rows_per_step_ = run.train_batch_size;
    DatasetFacts facts;
    facts.seq_length = options_.seq_length, facts.validation = true;
    facts.notes = Value::Object{{"file", options_.file},
                                {"bytes", static_cast<int64_t>(text_.size())},
                                {"lines", static_cast<int64_t>(train_.size() + validation_.size())}};
    return facts;
  }

  void read(const BatchRequest& request, Batch& batch) override {
    const int64_t S = options_.seq_length;
    batch.tokens_BS = at::zeros({request.rows, S}, at::TensorOptions(at::kLong));
    batch.labels_BS = at::full({request.rows, S}, kIgnored, at::TensorOptions(at::kLong));
    for (int64_t i = 0; i < request.rows; ++i) {
      const std::string_view line = line_of(request, request.first_row + i);
      int64_t* const tokens = batch.tokens_BS.mutable_data_ptr<int64_t>() + i * S;
      int64_t* const labels = batch.labels_BS.mutable_data_ptr<int64_t>() + i * S;
      for (int64_t s = 0; s < S && s + 1 < static_cast<int64_t>(line.size()); ++s) {
        tokens[s] = static_cast<unsigned char>(line[static_cast<size_t>(s)]);
        labels[s] = static_cast<unsigned char>(line[static_cast<size_t>(s + 1)]);
      }
    }
  }

 private:
  void cut_lines() {
    std::string_view rest = text_;
    for (int64_t number = 1; !rest.empty(); ++number) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (line.size() > 1) (number % 20 == 0 ? validation_ : train_).push_back(line);
    }
  }

  // The rows of all steps are counted through; each epoch is a permutation of the lines.
  std::string_view line_of(const BatchRequest& request, int64_t row) const {
    const bool train = request.part == DataPart::train;
    const std::vector<std::string_view>& lines = train ? train_ : validation_;
    const auto count = static_cast<int64_t>(lines.size());
    const int64_t index = (request.step - 1) * rows_per_step_ + row;
    const uint64_t key = seed_ ^ hash_name(concat(train ? "train" : "validation", index / count));
    return lines[static_cast<size_t>(Permutation(count, key)(index % count))];
  }

  const Options options_;
  const uint64_t seed_;
  std::string text_;
  std::vector<std::string_view> train_, validation_;  // of text_
  int64_t rows_per_step_ = 1;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Dataset, "lines", Lines)
