#include "generate/decoder.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include <drivetrain/error.h>

#include "generate/cache_probe.h"

namespace drivetrain {
namespace {

at::Tensor on_cpu(const at::Tensor& logits) { return logits.to(at::TensorOptions(at::kCPU).dtype(at::kFloat)); }

}  // namespace

Decoder::Decoder(Inference& model, Log& log)
    : model_(model), log_(log), positions_(model.model().facts().max_position_embeddings) {}

void Decoder::begin(std::vector<std::vector<int64_t>> texts, int64_t most) {
  texts_ = std::move(texts);
  growing_.clear();
  for (size_t i = 0; i < texts_.size(); ++i) growing_.push_back(i);
  most_ = most;
  cache_.reset(), cached_.clear();
}

bool Decoder::fits(size_t text) const { return static_cast<int64_t>(texts_[text].size()) <= positions_; }

bool Decoder::takes_cache() {
  if (takes_cache_) return *takes_cache_;
  const std::string why = why_no_cache(model_);
  takes_cache_ = why.empty();
  if (!why.empty())
    log_.warning(concat("every token is computed from the whole text, without a key/value cache: ", why));
  return *takes_cache_;
}

void Decoder::tell_length() {
  if (!std::exchange(said_length_, true))
    log_.warning(concat("a text is longer than the ", positions_, " positions of the model (max_position_embeddings): ",
                        "from here on each token follows from the last ", positions_, " alone, without the cache"));
}

at::Tensor Decoder::logits() {
  std::vector<size_t> within, beyond;
  for (const size_t text : growing_) (fits(text) ? within : beyond).push_back(text);
  if (!beyond.empty()) tell_length();
  if (within.empty() || !takes_cache()) return on_cpu(whole_texts(growing_));
  const at::Tensor near = cache_ ? next_pass() : first_pass(std::move(within));
  if (beyond.empty()) return on_cpu(near);
  const at::Tensor far = whole_texts(beyond);
  Tensors rows;
  for (int64_t n = 0, f = 0; const size_t text : growing_) rows.push_back(fits(text) ? near[n++] : far[f++]);
  return on_cpu(at::stack(rows));
}

// Text by text: rows of unequal lengths would need to be filled up, and a model that is computed so may look at that.
at::Tensor Decoder::whole_texts(const std::vector<size_t>& texts) {
  Tensors rows;
  for (const size_t i : texts) {
    const at::ArrayRef<int64_t> text = texts_[i];
    const size_t seen = std::min(text.size(), static_cast<size_t>(positions_));
    const at::Tensor tokens = at::tensor(text.slice(text.size() - seen), at::kLong).unsqueeze(0);
    rows.push_back(model_.logits(tokens).select(1, -1));
  }
  return rows.size() == 1 ? rows.front() : at::cat(rows);
}

// Texts of one length in one pass. Else all but the last token of each, filled up at the end, where nobody looks back
// from, and the last ones together: the logits of the last column are then those of every text.
at::Tensor Decoder::first_pass(std::vector<size_t> texts) {
  cached_ = std::move(texts);
  std::vector<int64_t> lengths;
  for (const size_t i : cached_) lengths.push_back(static_cast<int64_t>(texts_[i].size()));
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  cache_ = model_.new_cache(static_cast<int64_t>(cached_.size()), std::min(positions_, longest + most_));
  const bool equal = *std::min_element(lengths.begin(), lengths.end()) == longest;
  const int64_t columns = equal ? longest : longest - 1;
  at::Tensor tokens = at::zeros({static_cast<int64_t>(cached_.size()), columns}, at::TensorOptions(at::kLong));
  for (size_t b = 0; b < cached_.size(); ++b) {
    if (!equal) --lengths[b];
    std::copy_n(texts_[cached_[b]].begin(), lengths[b], tokens.mutable_data_ptr<int64_t>() + b * columns);
  }
  const at::Tensor logits = model_.next_logits(tokens, *cache_);
  most_cache_bytes_ = std::max(most_cache_bytes_, cache_->bytes());
  cache_->advance(lengths);
  return equal ? logits : next_pass();
}

at::Tensor Decoder::next_pass() {
  std::vector<int64_t> last;
  for (const size_t i : cached_) last.push_back(texts_[i].back());
  const at::Tensor logits = model_.next_logits(at::tensor(last, at::kLong).unsqueeze(1), *cache_);
  cache_->advance(std::vector<int64_t>(last.size(), 1));
  return logits;
}

void Decoder::add(const std::vector<std::optional<int64_t>>& tokens) {
  std::vector<size_t> growing;
  for (size_t b = 0; b < growing_.size(); ++b) {
    if (!tokens.at(b)) continue;
    texts_[growing_[b]].push_back(*tokens[b]);
    growing.push_back(growing_[b]);
  }
  growing_ = std::move(growing);
  keep_in_cache();
}

// Rows of texts that have ended, or that have outgrown the model's positions, leave it.
void Decoder::keep_in_cache() {
  std::vector<size_t> texts;
  std::vector<int64_t> rows;
  for (size_t row = 0; row < cached_.size(); ++row) {
    const size_t text = cached_[row];
    if (!fits(text) || !std::binary_search(growing_.begin(), growing_.end(), text)) continue;
    texts.push_back(text), rows.push_back(static_cast<int64_t>(row));
  }
  if (rows.empty())
    cache_.reset();
  else if (rows.size() < cached_.size())
    cache_->keep(rows);
  cached_ = std::move(texts);
}

}  // namespace drivetrain
