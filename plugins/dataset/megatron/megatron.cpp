// Token files of Megatron (.bin and .idx): one or a blend of several, cut into rows in Megatron-Core's order or in one
// that needs no index. Legend: B rows, S positions.
#include <drivetrain/dataset.h>
#include <drivetrain/services.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <map>

#include "counter_order.h"
#include "data_path.h"
#include "document_list.h"
#include "eod.h"
#include "megatron_order.h"

namespace {

using namespace drivetrain;
using namespace drivetrain::megatron;

constexpr int64_t kTrain = 0, kValid = 1;

class Megatron : public Dataset {
 public:
  struct Options {
    Value data_path;
    std::string split = "969,30,1", order = "counter";
    int64_t seq_length = 0;
    std::optional<int64_t> seed, train_samples, valid_samples, eod;
    bool reset_position_ids = false, reset_attention_mask = false, eod_mask_loss = false;
    std::optional<std::string> index_cache;
    bool counts() const { return order == "counter"; }
  };
  static OptionTable options() {
    return table<Options>()
        .field("data_path", &Options::data_path,
               "prefix of a pair PREFIX.bin and PREFIX.idx, a list of prefixes (each by its size), or a blend "
               "[[0.3, \"a\"], [0.7, \"b\"]]")
        .required()
        .path()
        .field("split", &Options::split, "shares of training, validation and test, cut in file order")
        .field("seq_length", &Options::seq_length, "tokens per row")
        .required()
        .at_least(1)
        .field("order", &Options::order, "counter: a keyed permutation without an index; megatron: Megatron-Core's")
        .one_of({"counter", "megatron"})
        .field("seed", &Options::seed, "of the order; default: the run's")
        .at_least(0)
        .field("train_samples", &Options::train_samples,
               "order megatron: how many training samples its index is made for; default: those of train_steps")
        .at_least(1)
        .field("valid_samples", &Options::valid_samples,
               "order megatron: how many validation samples its index is made for; default: one epoch")
        .at_least(1)
        .field("eod", &Options::eod, "id of the token that ends a document; the next three need it")
        .at_least(0)
        .field("reset_position_ids", &Options::reset_position_ids, "positions begin at 0 behind each eod")
        .field("reset_attention_mask", &Options::reset_attention_mask, "attention stays between two eod")
        .field("eod_mask_loss", &Options::eod_mask_loss, "what is to be predicted behind an eod does not count")
        .field("index_cache", &Options::index_cache,
               "order megatron: folder in which indices are looked for and kept; default: looked for where "
               "Megatron-Core keeps them, kept in memory")
        .path()
        .alias("data_cache_path")
        .finish(check);
  }

  Megatron(const Options& options, const Services& services)
      : options_(options),
        path_(parse_data_path(options.data_path)),
        split_(options.split),
        seed_(options.seed ? static_cast<uint64_t>(*options.seed) : services.seed),
        writes_(services.rank == 0),
        log_(services.log) {}

  DatasetFacts open(const RunFacts& run, const ModelFacts& model) override {
    if (options_.eod && *options_.eod >= model.vocab_size)
      throw fail(ErrorCode::config, "dataset/megatron: eod is ", *options_.eod,
                 ", outside of the model's vocabulary (0 to ", model.vocab_size - 1, ")");
    rows_of_a_step_ = run.train_batch_size;
    open_files(model.vocab_size);
    const int64_t samples = run.train_steps * rows_of_a_step_;
    parts_[kTrain] = open_part(kTrain, options_.train_samples.value_or(samples));
    parts_[kValid] = open_part(kValid, options_.valid_samples);
    if (!parts_[kTrain].order)
      throw fail(ErrorCode::config, "dataset/megatron: split is \"", options_.split,
                 "\", which leaves nothing for training");
    DatasetFacts facts;
    facts.seq_length = options_.seq_length;
    const int64_t there = parts_[kTrain].order->samples();
    facts.steps = there < 0 ? -1 : there / rows_of_a_step_;
    facts.validation = parts_[kValid].order != nullptr;
    facts.documents = options_.reset_attention_mask || options_.reset_position_ids;
    facts.notes = notes(samples);
    return facts;
  }

  void read(const BatchRequest& request, Batch& batch) override {
    const bool training = request.part == DataPart::train;
    Order* const order = parts_[training ? kTrain : kValid].order.get();
    if (!order)
      throw fail(ErrorCode::config, "dataset/megatron: split \"", options_.split, "\" leaves nothing for validation");
    if (training && request.first_row == 0) announce_epochs(*order, request.step);
    for (int64_t i = 0; i < request.rows; ++i)  // the same rows of the step after this one
      order->expect(sample_of(*order, request.step + 1, request.first_row + i));
    const int64_t S = options_.seq_length;
    const auto longs = at::TensorOptions(at::kLong);
    batch.tokens_BS = at::empty({request.rows, S}, longs), batch.labels_BS = at::empty({request.rows, S}, longs);
    std::vector<int64_t> row(static_cast<size_t>(S) + 1);
    for (int64_t i = 0; i < request.rows; ++i) {
      order->read(sample_of(*order, request.step, request.first_row + i), row.data());
      std::copy_n(row.data(), S, batch.tokens_BS.mutable_data_ptr<int64_t>() + i * S);
      std::copy_n(row.data() + 1, S, batch.labels_BS.mutable_data_ptr<int64_t>() + i * S);
    }
    if (options_.eod) apply_eod(batch);
  }

  std::string origin(const BatchRequest& request) override {
    const Order& order = *parts_[request.part == DataPart::train ? kTrain : kValid].order;
    return concat(path_.one() ? path_.prefixes.front() : "data_path", ", sample ",
                  sample_of(order, request.step, request.first_row));
  }

  const Documents* documents(DataPart which) const override {
    const Part& part = parts_[which == DataPart::train ? kTrain : kValid];
    if (!part.order) return nullptr;
    if (!path_.weights.empty())
      throw fail(
          ErrorCode::config,
          "dataset/megatron: data_path has weights, but documents are taken once each\n   leave the weights out: a "
          "list of prefixes");
    if (!part.documents)
      part.documents =
          std::make_unique<DocumentList>(part.members, options_.eod_mask_loss ? options_.eod : std::nullopt);
    return part.documents.get();
  }

 private:
  struct Part {
    std::vector<Member> members;
    std::unique_ptr<Order> order;
    mutable std::unique_ptr<DocumentList> documents;
  };

  static void check(const Options& o) {
    parse_data_path(o.data_path);
    const Split split(o.split);
    const char* const needs = o.reset_position_ids     ? "reset_position_ids"
                              : o.reset_attention_mask ? "reset_attention_mask"
                              : o.eod_mask_loss        ? "eod_mask_loss"
                                                       : nullptr;
    if (needs && !o.eod) throw fail(ErrorCode::config, needs, " needs eod, the id of the token that ends a document");
    const char* const other = o.train_samples   ? "train_samples"
                              : o.valid_samples ? "valid_samples"
                              : o.index_cache   ? "index_cache"
                                                : nullptr;
    if (other && o.counts()) throw fail(ErrorCode::config, other, " is for \"order\": \"megatron\"; leave it out");
  }

  void open_files(int64_t vocabulary) {
    files_.clear();
    for (const std::string& prefix : path_.prefixes) {
      if (files_.count(prefix)) continue;
      const auto file = std::make_shared<TokenFile>(prefix, vocabulary);
      const int64_t more = file->file().bytes() - file->index().end();
      if (more > 0)
        log_.warning(concat("dataset/megatron: ", file->file().path(), " has ", more,
                            " bytes behind its last sequence, which are not read"));
      files_[prefix] = file;
    }
  }

  Part open_part(int64_t number, std::optional<int64_t> samples) {
    Part part;
    if (!split_.has(number)) return part;
    for (const std::string& prefix : path_.prefixes) {
      const auto& file = files_.at(prefix);
      part.members.push_back({file, split_.sequences(number, file->index().sequences())});
      if (part.members.back().range.count() > 0) continue;
      throw fail(ErrorCode::config, "dataset/megatron: the ", kPartNames[number], " part of ", prefix,
                 " gets no document: split \"", options_.split, "\" of ", file->index().sequences(),
                 " sequences\n   give it a larger share or none (\"100,0,0\"), or name more data");
    }
    if (options_.counts())
      part.order = std::make_unique<CounterOrder>(part.members, path_.weights, options_.seq_length, seed_, number);
    else
      part.order = std::make_unique<MegatronOrder>(part.members, request_of(number, samples), split_, log_);
    return part;
  }

  MegatronRequest request_of(int64_t number, std::optional<int64_t> samples) const {
    if (seed_ > UINT32_MAX)
      throw fail(ErrorCode::config, "dataset/megatron: the seed is ", seed_,
                 "; \"order\": \"megatron\" takes those below 2^32, as NumPy does");
    return {path_.weights,  !path_.one(),
            samples,        options_.seq_length,
            number,         static_cast<uint32_t>(seed_),
            options_.split, options_.index_cache.value_or(""),
            writes_};
  }

  // Evaluations that ask for more samples than there are begin again at the first.
  int64_t sample_of(const Order& order, int64_t step, int64_t row) const {
    const int64_t k = (step - 1) * rows_of_a_step_ + row;
    return order.samples() < 0 ? k : k % order.samples();
  }

  void announce_epochs(Order& order, int64_t step) const {
    for (const std::string& line : order.epochs_begun((step - 1) * rows_of_a_step_, step * rows_of_a_step_))
      log_.info(concat("dataset/megatron: ", line, " begins in step ", step));
  }

  void apply_eod(Batch& batch) const {
    const int64_t rows = batch.tokens_BS.size(0), S = batch.tokens_BS.size(1), eod = *options_.eod;
    if (options_.reset_position_ids) batch.position_ids_BS = at::empty_like(batch.tokens_BS);
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t* const tokens = batch.tokens_BS.const_data_ptr<int64_t>() + i * S;
      if (options_.eod_mask_loss) mask_labels(tokens, S, eod, batch.labels_BS.mutable_data_ptr<int64_t>() + i * S);
      if (options_.reset_position_ids)
        write_positions(tokens, S, eod, batch.position_ids_BS.mutable_data_ptr<int64_t>() + i * S);
      if (options_.reset_attention_mask) batch.documents += append_begins(tokens, S, eod, i * S, batch.cu_seqlens);
    }
    if (options_.reset_attention_mask) batch.cu_seqlens.push_back(rows * S);
  }

  // Compared when a run goes on: a file that was replaced meanwhile is an error.
  Value notes(int64_t samples) const {
    Value note = Value::object();
    note.set("order", options_.order);
    note.set("seed", static_cast<int64_t>(seed_));
    Value& files = note.set("files", Value::object());
    for (const auto& [prefix, file] : files_) {
      Value& one = files.set(prefix, Value::object());
      const IndexFile& index = file->index();
      one.set("type", name_of(index.type()));
      one.set("documents", index.documents());
      one.set("sequences", index.sequences());
      one.set("tokens_bytes", index.end());
      one.set("bin_bytes", file->file().bytes());
      one.set("bin_mtime_ns", file->file().mtime_ns());
      one.set("idx_bytes", index.file().bytes());
      one.set("idx_mtime_ns", index.file().mtime_ns());
      one.set("digest", file->digest());
    }
    note.set("train", parts_[kTrain].order->notes(samples));
    note.set("validation", parts_[kValid].order ? parts_[kValid].order->notes(0) : Value());
    return note;
  }

  const Options options_;
  const DataPath path_;
  const Split split_;
  const uint64_t seed_;
  const bool writes_;
  Log& log_;
  int64_t rows_of_a_step_ = 0;
  std::map<std::string, std::shared_ptr<const TokenFile>> files_;
  Part parts_[2];
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Dataset, "megatron", Megatron)
