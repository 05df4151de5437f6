// Batches that someone else made: a safetensors file with one slice of tokens per step, so that two programs can be
// compared on the same rows. Legend: B rows of a micro-batch in the file, S sequence.
#include <drivetrain/dataset.h>
#include <drivetrain/random.h>
#include <drivetrain/safetensors.h>
#include <drivetrain/services.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

namespace {

using namespace drivetrain;

constexpr int64_t kIgnored = -100;

class TokenBatches : public Dataset {
 public:
  struct Options {
    std::string file;
    std::optional<int64_t> seq_length;
  };
  static OptionTable options() {
    return table<Options>()
        .field("file", &Options::file, "safetensors file with \"tokens\" and perhaps \"labels\" and \"documents\"")
        .required()
        .path()
        .field("seq_length", &Options::seq_length, "must be the file's if given; default: the file's")
        .at_least(1);
  }

  TokenBatches(const Options& options, const Services&) : options_(options) {}

  DatasetFacts open(const RunFacts& run, const ModelFacts&) override {
    file_.emplace(SafetensorsFile::open(options_.file));
    check_names();
    check_tokens(run);
    for (const char* name : {"labels", "documents"})
      if (file_->contains(name)) check_columns(name);
    if (file_->contains("labels")) check_labels();
    DatasetFacts facts;
    facts.seq_length = shape_[3] - 1;
    facts.steps = shape_[0];
    facts.notes = Value::object();
    facts.notes.set("file", options_.file);
    facts.notes.set("steps", shape_[0]);
    facts.notes.set("micro_batches", shape_[1]);
    facts.notes.set("rows_per_micro_batch", shape_[2]);
    facts.notes.set("labels", file_->contains("labels"));
    facts.documents = file_->contains("documents");
    facts.notes.set("documents", facts.documents);
    facts.notes.set("digest", digest());
    return facts;
  }

  void read(const BatchRequest& request, Batch& batch) override {
    const int64_t rows = shape_[1] * shape_[2], S = shape_[3] - 1;
    if (request.part != DataPart::train)
      throw fail(ErrorCode::config, "dataset/token_batches: ", options_.file,
                 " has no validation part; set eval_interval to 0");
    if (request.step < 1 || request.step > shape_[0])
      throw fail(ErrorCode::io, "dataset/token_batches: step ", request.step, " was asked for, but ", options_.file,
                 " has ", shape_[0], " steps; set train_steps to ", shape_[0], " or less");
    if (request.first_row < 0 || request.first_row + request.rows > rows)
      throw fail(ErrorCode::internal, "dataset/token_batches: rows ", request.first_row, " to ",
                 request.first_row + request.rows - 1, " of ", rows, " were asked for");
    const at::Tensor tokens = rows_of("tokens", request, S + 1);
    batch.tokens_BS = tokens.narrow(1, 0, S).contiguous();
    batch.labels_BS = file_->contains("labels") ? rows_of("labels", request, S) : tokens.narrow(1, 1, S).contiguous();
    if (file_->contains("documents")) set_documents(rows_of("documents", request, S), batch);
  }

  std::string origin(const BatchRequest& request) override {
    return concat(options_.file, ", step ", request.step, ", row ", request.first_row);
  }

 private:
  // A document ends where its number does, and with the row. Positions begin again in each.
  static void set_documents(const at::Tensor& numbers_BS, Batch& batch) {
    const int64_t S = numbers_BS.size(1), all = numbers_BS.numel();
    batch.position_ids_BS = numbers_BS.clone();
    const int64_t* number = numbers_BS.const_data_ptr<int64_t>();
    int64_t* position = batch.position_ids_BS.mutable_data_ptr<int64_t>();
    for (int64_t i = 0; i < all; ++i) {
      const bool begins = i % S == 0 || number[i] != number[i - 1];
      if (begins) batch.cu_seqlens.push_back(i);
      position[i] = begins ? 0 : position[i - 1] + 1;
    }
    batch.cu_seqlens.push_back(all);
    batch.documents = static_cast<int64_t>(batch.cu_seqlens.size()) - 1;
  }

  // In file order, a step's micro-batches times rows are its global batch.
  at::Tensor rows_of(const std::string& name, const BatchRequest& request, int64_t length) const {
    return file_->rows(name, request.step - 1, 1)
        .view({-1, length})
        .narrow(0, request.first_row, request.rows)
        .contiguous();
  }

  template <class... Parts>
  Error wrong(const Parts&... parts) const {
    return fail(ErrorCode::config, "dataset/token_batches: ", options_.file, ": ", parts...);
  }

  // A misspelt "labels" would be left out in silence, and the run trained on others.
  // Of the first, a middle and the last step: a run that goes on with another file is told so.
  std::string digest() {
    uint64_t hash = 0;
    for (const int64_t step : {int64_t{1}, (shape_[0] + 1) / 2, shape_[0]}) {
      Batch batch;
      read({DataPart::train, step, 0, shape_[1] * shape_[2]}, batch);
      for (const at::Tensor& t : {batch.tokens_BS, batch.labels_BS})
        hash = hash * 0x100000001b3u ^
               hash_name({static_cast<const char*>(t.const_data_ptr()), static_cast<size_t>(t.nbytes())});
    }
    char text[20];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
    return text;
  }

  void check_names() const {
    const std::vector<std::string> known = {"tokens", "labels", "documents"};
    for (const std::string& name : file_->names()) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      const auto nearest = std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
        return distance(name, a) < distance(name, b);
      });
      throw wrong(
          "has a tensor \"", name, "\", which means nothing here; known are \"tokens\", \"labels\" and \"documents\"",
          distance(name, *nearest) <= 3 ? concat("; did you mean \"", *nearest, "\"?") : "; write the file without it");
    }
  }

  // Letters to change, insert or leave out (Levenshtein 1966).
  static size_t distance(const std::string& a, const std::string& b) {
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= a.size(); ++i) {
      size_t diagonal = std::exchange(row[0], i);
      for (size_t j = 1; j <= b.size(); ++j)
        diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])}));
    }
    return row[b.size()];
  }

  void check_tokens(const RunFacts& run) {
    if (!file_->contains("tokens")) throw wrong("has no tensor \"tokens\" (int64 [steps, micro_batches, B, S+1])");
    if (file_->dtype("tokens") != at::kLong)
      throw wrong("\"tokens\" is ", toString(file_->dtype("tokens")), ", wanted int64");
    shape_ = file_->shape("tokens");
    if (shape_.size() != 4 || shape_[0] < 1 || shape_[1] < 1 || shape_[2] < 1 || shape_[3] < 2)
      throw wrong("\"tokens\" has shape ", at::IntArrayRef(shape_), ", wanted [steps, micro_batches, B, S+1]");
    const int64_t rows = shape_[1] * shape_[2];
    if (run.train_batch_size.known() && rows != run.train_batch_size)
      throw wrong("each step has ", shape_[1], " micro-batches x ", shape_[2], " rows = ", rows,
                  ", but train_batch_size is ", run.train_batch_size.value(), "; set train_batch_size to ", rows);
    if (options_.seq_length && *options_.seq_length != shape_[3] - 1)
      throw wrong("its rows are ", shape_[3] - 1,
                  " tokens long (S of [steps, micro_batches, B, S+1]), but seq_length is ", *options_.seq_length,
                  "; leave seq_length out");
  }

  // Reads up to the first label that counts, which mostly is one of the first.
  void check_labels() const {
    for (int64_t step = 0; step < shape_[0]; ++step) {
      const at::Tensor labels = file_->rows("labels", step, 1).contiguous();
      const int64_t *begin = labels.const_data_ptr<int64_t>(), *end = begin + labels.numel();
      if (std::any_of(begin, end, [](int64_t label) { return label != kIgnored; })) return;
    }
    throw fail(
        ErrorCode::io, "dataset/token_batches: ", options_.file, ": no label of its ", shape_[0],
        " steps counts: every one is -100, so that nothing would be learned\n   write \"labels\" with the tokens ",
        "that follow, or the file without it: labels are then the tokens");
  }

  void check_columns(const char* name) const {
    if (file_->dtype(name) != at::kLong)
      throw wrong("\"", name, "\" is ", toString(file_->dtype(name)), ", wanted int64");
    std::vector<int64_t> wanted = shape_;
    wanted[3] -= 1;
    if (file_->shape(name) != wanted)
      throw wrong("\"", name, "\" has shape ", at::IntArrayRef(file_->shape(name)), ", wanted ",
                  at::IntArrayRef(wanted), ": that of \"tokens\" without the last column");
  }

  const Options options_;
  std::optional<SafetensorsFile> file_;
  std::vector<int64_t> shape_;  // of tokens: steps, micro_batches, B, S + 1
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Dataset, "token_batches", TokenBatches)
