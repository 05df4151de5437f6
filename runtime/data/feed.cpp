#include "data/feed.h"

#include <oneapi/tbb/concurrent_queue.h>

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include <drivetrain/error.h>

#include "data/state_copy.h"
#include "plugin_calls/plugin_call.h"
#include "plugin_calls/tensor_check.h"

namespace drivetrain {
namespace {

constexpr int64_t kIgnored = -100;
// To say where rows come from may take a look through a file, and nobody reads more of such lines.
constexpr int64_t kMostOrigins = 32;

struct IdCheck {
  const char* what;  // "token", "label"
  bool may_ignore;   // -100 is allowed
  const char* remedy;
};
constexpr IdCheck kTokens = {"token", false,
                             "use a dataset made with this model's tokenizer, or set model.params.vocab_size"};
constexpr IdCheck kLabels = {"label", true, "a label is a token id, or -100 where it should not count"};

// The first element that is not in [0, vocabulary) (nor -100 where that is allowed), as an error with its place.
void check_ids(const at::Tensor& ids_BS, const IdCheck& check, const FeedPlan& plan, const BatchRequest& request) {
  const int64_t* data = ids_BS.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < ids_BS.numel(); ++i) {
    if (data[i] >= 0 && data[i] < plan.vocab_size) continue;
    if (check.may_ignore && data[i] == kIgnored) continue;
    throw fail(ErrorCode::io, plan.dataset, ": unreadable data at ",
               request.part == DataPart::train ? "step " : "validation batch ", request.step, ": ", check.what, " ",
               data[i], " in row ", request.first_row + i / ids_BS.size(1), ", position ", i % ids_BS.size(1),
               " is outside of the model's vocabulary (0 to ", plan.vocab_size - 1, ")\n   ", check.remedy);
  }
}

int64_t count_valid(const at::Tensor& labels_BS) {
  const int64_t* data = labels_BS.const_data_ptr<int64_t>();
  int64_t n = 0;
  for (int64_t i = 0; i < labels_BS.numel(); ++i) n += data[i] != kIgnored;
  return n;
}

// One of the two tensors that a dataset fills.
void check_filled(const char* name, const at::Tensor& found, const FeedPlan& plan, const BatchRequest& request) {
  const std::vector<int64_t> shape = {request.rows, plan.seq_length};
  std::string problem = tensor_problem(found, {shape, at::kLong, at::kCPU});
  if (problem.empty() && !found.is_contiguous()) problem = "wanted contiguous rows, found others";
  if (!problem.empty()) throw fail(ErrorCode::plugin, "returned a wrong ", name, ": ", problem);
}

// What a dataset says of the documents in the rows.
void check_documents(const Batch& batch, const FeedPlan& plan, const BatchRequest& request) {
  if (!batch.cu_seqlens.empty() && !plan.documents)
    throw fail(ErrorCode::plugin, "set cu_seqlens, but open() returned documents = false");
  const std::string problem = cu_seqlens_problem(batch.cu_seqlens, request.rows, plan.seq_length);
  if (!problem.empty()) throw fail(ErrorCode::plugin, problem);
  const at::Tensor& ids_BS = batch.position_ids_BS;
  if (!ids_BS.defined()) return;
  check_filled("position_ids_BS", ids_BS, plan, request);
  const int64_t* ids = ids_BS.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < ids_BS.numel(); ++i)
    if (ids[i] < 0 || ids[i] > i % plan.seq_length)
      throw fail(ErrorCode::plugin, "returned a wrong position_ids_BS: ", ids[i], " in row ",
                 request.first_row + i / plan.seq_length, ", column ", i % plan.seq_length, "; wanted 0 to the column");
}

Batch read_checked(Dataset& dataset, const FeedPlan& plan, const BatchRequest& request) {
  Batch batch;
  const std::string number = concat(request.step);
  const char* const noun = request.part == DataPart::train ? "step" : "validation batch";
  plugin_call({plan.dataset, "read", number, noun}, [&] {
    dataset.read(request, batch);
    check_filled("tokens_BS", batch.tokens_BS, plan, request);
    check_filled("labels_BS", batch.labels_BS, plan, request);
    check_documents(batch, plan, request);
  });
  check_ids(batch.tokens_BS, kTokens, plan, request);
  check_ids(batch.labels_BS, kLabels, plan, request);
  batch.valid_tokens = count_valid(batch.labels_BS);
  batch.first_sample = (request.step - 1) * plan.train_batch_size + request.first_row;
  return batch;
}

}  // namespace

struct Feed::Impl {
  struct Item {
    Batch batch;
    std::exception_ptr failure;
    std::shared_ptr<StateCopy> state = nullptr;  // with the last batch of a step
    std::string origin = {};                     // of a batch without a label that counts
  };
  std::shared_ptr<Dataset> dataset;
  FeedPlan plan;
  tbb::concurrent_bounded_queue<Item> queue;
  std::thread thread;
  std::atomic<bool> stopping = false, done = false;
  std::shared_ptr<StateCopy> consumed;  // main thread
  std::string origin;                   // main thread
  int64_t origins = 0;                  // asked for

  std::shared_ptr<StateCopy> copy_state() {
    auto copy = std::make_shared<StateCopy>();
    plugin_call({plan.dataset, "state"}, [&] { dataset->state(*copy); });
    return copy;
  }

  std::string origin_of(const BatchRequest& request) {
    if (++origins > kMostOrigins) return {};
    return plugin_call({plan.dataset, "origin"}, [&] { return dataset->origin(request); });
  }

  // `last`: of all that belongs to a step of the run.
  void read_step(DataPart part, int64_t step, bool last) {
    for (int64_t a = 0; a < plan.accumulation && !stopping; ++a) {
      BatchRequest request;
      request.part = part;
      request.step = step;
      request.first_row = (a * plan.dp_size + plan.dp_rank) * plan.micro_batch_size;
      request.rows = plan.micro_batch_size;
      Batch batch = read_checked(*dataset, plan, request);
      const bool ends_step = last && a + 1 == plan.accumulation;
      std::string origin = batch.valid_tokens == 0 ? origin_of(request) : "";
      queue.push({std::move(batch), nullptr, ends_step ? copy_state() : nullptr, std::move(origin)});
    }
  }

  void walk() {
    try {
      for (int64_t step = plan.first_step; step <= plan.last_step && !stopping; ++step) {
        const bool evaluates = plan.eval_due(step);
        read_step(DataPart::train, step, !evaluates);
        if (!evaluates) continue;
        for (int64_t i = 1; i <= plan.eval_iters && !stopping; ++i)
          read_step(DataPart::validation, i, i == plan.eval_iters);
      }
    } catch (...) {
      queue.push({{}, std::current_exception()});
    }
    done = true;
  }
};

Feed::Feed(std::shared_ptr<Dataset> dataset, const FeedPlan& plan) : impl_(std::make_unique<Impl>()) {
  impl_->dataset = std::move(dataset);
  impl_->plan = plan;
  // Two steps ahead: enough to hide reading, little to hold.
  impl_->queue.set_capacity(std::max<int64_t>(2 * plan.accumulation, 2));
  impl_->thread = std::thread([impl = impl_.get(), rank = work_rank()] {
    work_rank() = rank;
    impl->walk();
  });
}

Feed::~Feed() {
  impl_->stopping = true;
  // A full queue blocks the loader: make room until it has seen the flag.
  while (!impl_->done) {
    Impl::Item dropped;
    if (!impl_->queue.try_pop(dropped)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  impl_->thread.join();
}

Batch Feed::next() {
  Impl::Item item;
  impl_->queue.pop(item);
  if (item.failure) std::rethrow_exception(item.failure);
  if (item.state) impl_->consumed = std::move(item.state);
  impl_->origin = std::move(item.origin);
  return std::move(item.batch);
}

const std::string& Feed::origin_without_labels() const { return impl_->origin; }

void Feed::state(StateVisitor& visitor) {
  if (impl_->consumed) impl_->consumed->show(visitor);
}

}  // namespace drivetrain
