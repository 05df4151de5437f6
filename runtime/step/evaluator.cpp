#include "step/evaluator.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "data/cut_batch.h"
#include "plugin_calls/plugin_call.h"
#include "plugin_calls/tensor_check.h"

namespace drivetrain {
namespace {

constexpr int64_t kIgnored = -100;
// Of the losses of all ranks, this many blocks are on the device at a time.
constexpr int64_t kGathered = 1 << 14;

int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Every way of sharing a sequence divides twice the number of ranks. 64: what kernels like.
int64_t columns_for(int64_t length, int64_t ranks, int64_t most) {
  const int64_t unit = std::lcm<int64_t>(64, 2 * ranks);
  return std::max(length, std::min(quotient_up(length, unit) * unit, most));
}

at::Tensor filled_up(const at::Tensor& t, int64_t rows, int64_t columns, int64_t filling) {
  if (t.size(0) == rows && t.size(1) == columns) return t;
  at::Tensor whole = at::full({rows, columns}, filling, t.options());
  whole.narrow(0, 0, t.size(0)).narrow(1, 0, t.size(1)).copy_(t);
  return whole;
}

// The boundaries of rows that become longer: what is added to a row is a document, and so is an added row.
std::vector<int64_t> lengthened(const std::vector<int64_t>& cu_seqlens, int64_t length, int64_t rows, int64_t columns) {
  std::vector<int64_t> list;
  for (const int64_t begin : cu_seqlens) {
    const int64_t row = begin / length, place = row * columns + begin % length;
    if (begin % length == 0 && row > 0 && columns > length) list.push_back((row - 1) * columns + length);
    list.push_back(place);
  }
  for (int64_t row = cu_seqlens.back() / length; row < rows; ++row) list.push_back((row + 1) * columns);
  return list;
}

// Rows and columns that count nothing, behind what was read.
Batch filled_up(Batch batch, int64_t rows, int64_t columns) {
  if (!batch.cu_seqlens.empty())
    batch.cu_seqlens = lengthened(batch.cu_seqlens, batch.tokens_BS.size(1), rows, columns);
  batch.tokens_BS = filled_up(batch.tokens_BS, rows, columns, 0);
  batch.labels_BS = filled_up(batch.labels_BS, rows, columns, kIgnored);
  if (batch.position_ids_BS.defined()) batch.position_ids_BS = filled_up(batch.position_ids_BS, rows, columns, 0);
  return batch;
}

Batch empty_batch(int64_t rows, int64_t columns) {
  Batch batch;
  batch.tokens_BS = at::zeros({rows, columns}, at::TensorOptions(at::kLong));
  batch.labels_BS = at::full({rows, columns}, kIgnored, at::TensorOptions(at::kLong));
  return batch;
}

const Value& checked(const Value& figures) {
  if (!figures.is_object() || figures.members().empty())
    throw fail(ErrorCode::plugin, "returned no figures; wanted an object of numbers");
  for (const Value::Member& m : figures.members())
    if (m.key.empty() || m.key.find('/') != std::string::npos || !m.value.is_number() ||
        !std::isfinite(m.value.as_double()))
      throw fail(ErrorCode::plugin, "returned the figure \"", m.key, "\": ", m.value.to_json(),
                 "; wanted a name without slashes and a finite number");
  return figures;
}

EvaluatorParts named(EvaluatorParts parts, const std::string& set) {
  parts.executor.purpose = "eval/" + set;
  return parts;
}

}  // namespace

Evaluator::Evaluator(const EvaluatorParts& parts, NamedEvaluation set, StepState& state)
    : parts_(named(parts, set.name)),
      set_(std::move(set)),
      state_(state),
      executor_(parts_.executor, state, 0),
      batches_(parts.executor.device, parts.runtime),
      block_rows_(set_.facts.by_row ? 1 : parts.micro_batch_size),
      blocks_(quotient_up(set_.facts.rows, block_rows_)),
      waves_(quotient_up(blocks_, parts.executor.micro_batches * parts.batch_ranks)),
      columns_(columns_for(set_.facts.seq_length, parts.executor.mesh.world_size(), parts.most_positions)) {}

// As in training: micro-batch by micro-batch, in each rank by rank.
int64_t Evaluator::block_of(int64_t wave, int64_t micro) const {
  return (wave * parts_.executor.micro_batches + micro) * parts_.batch_ranks + parts_.batch_rank;
}

Value Evaluator::run(int64_t step) {
  losses_ = at::zeros({blocks_}, at::TensorOptions(at::kDouble).device(parts_.executor.device));
  tokens_.assign(static_cast<size_t>(blocks_), 0);
  for (int64_t wave = 0; wave < waves_; ++wave) {
    executor_.begin(Pass::forward_only, step, Mode::evaluate);
    const Tensors each =
        executor_.run_each([&](int64_t micro) { return batches_.put(micro, load(block_of(wave, micro))); });
    for (size_t micro = 0; micro < each.size(); ++micro)
      if (const int64_t block = block_of(wave, static_cast<int64_t>(micro)); block < blocks_)
        losses_.select(0, block).copy_(each[micro]);
  }
  const std::vector<RowScore> scores = gather();
  const auto counts = [](const RowScore& score) { return score.tokens > 0; };
  if (std::none_of(scores.begin(), scores.end(), counts)) return {};
  return plugin_call({set_.id, "result", set_.name, "set"}, [&] { return checked(set_.evaluation->result(scores)); });
}

Batch Evaluator::load(int64_t block) {
  Batch batch = cut_batch(block < blocks_ ? read(block) : empty_batch(block_rows_, columns_), parts_.batch_cuts);
  batch.valid_tokens = batch.labels_BS.ge(0).sum().item<int64_t>();
  if (block < blocks_) tokens_[static_cast<size_t>(block)] = static_cast<double>(batch.valid_tokens);
  return batch;
}

Batch Evaluator::read(int64_t block) {
  const int64_t first = block * block_rows_, rows = std::min(block_rows_, set_.facts.rows - first);
  Batch batch;
  const std::string where = concat(set_.name, ", row ", first);
  plugin_call({set_.id, "read", where, "set"}, [&] {
    set_.evaluation->read(first, rows, batch);
    check(batch, rows);
  });
  return filled_up(std::move(batch), block_rows_, columns_);
}

void Evaluator::check(const Batch& batch, int64_t rows) const {
  const int64_t S = set_.facts.seq_length;
  for (const auto& [name, t, least] :
       {std::tuple{"tokens_BS", batch.tokens_BS, int64_t{0}}, std::tuple{"labels_BS", batch.labels_BS, kIgnored}}) {
    std::string problem = tensor_problem(t, {{rows, S}, at::kLong, at::kCPU});
    if (problem.empty() && !t.is_contiguous()) problem = "wanted contiguous rows, found others";
    if (!problem.empty()) throw fail(ErrorCode::plugin, "returned a wrong ", name, ": ", problem);
    const int64_t* ids = t.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < t.numel(); ++i)
      if (ids[i] >= parts_.vocab_size || (ids[i] < 0 && ids[i] != least))
        throw fail(ErrorCode::io, name, " has ", ids[i], " in position ", i % S, ", which is outside of the model's ",
                   "vocabulary (0 to ", parts_.vocab_size - 1, ")\n   use the tokenizer of this model");
  }
  if (!batch.cu_seqlens.empty() && !set_.facts.documents)
    throw fail(ErrorCode::plugin, "set cu_seqlens, but open() returned documents = false");
  const std::string problem = cu_seqlens_problem(batch.cu_seqlens, rows, S);
  if (!problem.empty()) throw fail(ErrorCode::plugin, problem);
}

// A block's loss is the sum of those of its stages and of the ranks that share its rows; all but them have zeros.
std::vector<RowScore> Evaluator::gather() {
  const Mesh& mesh = parts_.executor.mesh;
  std::vector<std::string> axes = parts_.gradient_axes;
  const std::vector<int64_t> token_ranks = mesh.ranks(axes);
  axes.push_back(Schedule::kAxis);
  const std::vector<int64_t> loss_ranks = mesh.ranks(axes);
  std::vector<RowScore> scores(static_cast<size_t>(blocks_));
  for (int64_t first = 0; first < blocks_; first += kGathered) {
    const int64_t count = std::min(kGathered, blocks_ - first);
    const at::Tensor host = at::empty({count}, at::TensorOptions(at::kDouble));
    std::copy_n(tokens_.begin() + first, count, host.mutable_data_ptr<double>());
    const at::Tensor mine = at::cat({losses_.narrow(0, first, count), host.to(losses_.device())});
    const at::Tensor all = at::empty({mesh.world_size() * 2 * count}, mine.options());
    mesh.world()->all_gather(all, mine)->wait();
    const at::Tensor read = all.to(at::kCPU);
    const double* of = read.const_data_ptr<double>();
    for (int64_t i = 0; i < count; ++i) {
      RowScore& score = scores[static_cast<size_t>(first + i)];
      for (const int64_t rank : loss_ranks) score.loss += of[rank * 2 * count + i];
      double tokens = 0;
      for (const int64_t rank : token_ranks) tokens += of[rank * 2 * count + count + i];
      score.tokens = static_cast<int64_t>(tokens);
      if (!std::isfinite(score.loss))
        throw fail(ErrorCode::numeric, "the evaluation of ", set_.name, " gives loss ", score.loss, " in row ",
                   (first + i) * block_rows_, ". Try a lower learning rate, more warm-up or gradient_clipping");
    }
  }
  return scores;
}

}  // namespace drivetrain
