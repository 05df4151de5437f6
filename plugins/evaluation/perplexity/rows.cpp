#include "rows.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/files/read_file.h>
#include <drivetrain/toolkit/text/packed_file.h>

namespace drivetrain::perplexity {
namespace {

constexpr int64_t kIgnored = -100;
constexpr uint64_t kMostBytes = uint64_t{1} << 34;  // of a text that is held in memory

class BatchRows final : public Rows {
 public:
  BatchRows(std::shared_ptr<Dataset> dataset, const DatasetFacts& facts, DataPart part, int64_t batches, int64_t size)
      : dataset_(std::move(dataset)), facts_(facts), part_(part), batches_(batches), size_(size) {}
  int64_t count() const override { return batches_ * size_; }
  int64_t seq_length() const override { return facts_.seq_length; }
  bool documents() const override { return facts_.documents; }

  // A run of rows may begin in one batch and end in another.
  void read(int64_t first, int64_t rows, Batch& batch) const override {
    for (int64_t row = first; row < first + rows;) {
      BatchRequest request;
      request.part = part_, request.step = row / size_ + 1, request.first_row = row % size_;
      request.rows = std::min(first + rows - row, size_ - request.first_row);
      Batch piece;
      dataset_->read(request, piece);
      append(piece, batch);
      row += request.rows;
    }
  }

 private:
  static void append(const Batch& piece, Batch& batch) {
    if (!batch.tokens_BS.defined()) {
      batch = piece;
      return;
    }
    if (batch.cu_seqlens.empty() != piece.cu_seqlens.empty() ||
        batch.position_ids_BS.defined() != piece.position_ids_BS.defined())
      throw fail(ErrorCode::plugin, "the source has cu_seqlens or position ids in some of its batches only");
    const int64_t before = batch.tokens_BS.numel();
    batch.tokens_BS = at::cat({batch.tokens_BS, piece.tokens_BS});
    batch.labels_BS = at::cat({batch.labels_BS, piece.labels_BS});
    if (piece.position_ids_BS.defined())
      batch.position_ids_BS = at::cat({batch.position_ids_BS, piece.position_ids_BS});
    for (size_t i = 1; i < piece.cu_seqlens.size(); ++i) batch.cu_seqlens.push_back(before + piece.cu_seqlens[i]);
  }

  const std::shared_ptr<Dataset> dataset_;
  const DatasetFacts facts_;
  const DataPart part_;
  const int64_t batches_, size_;
};

class DocumentRows final : public Rows {
 public:
  DocumentRows(std::shared_ptr<const Documents> documents, int64_t length) : documents_(std::move(documents)) {
    int64_t longest = 1;
    for (int64_t i = 0; i < documents_->count(); ++i) longest = std::max(longest, documents_->length(i));
    length_ = std::min(length, longest);
    ends_.reserve(static_cast<size_t>(documents_->count()));
    for (int64_t i = 0; i < documents_->count(); ++i)
      ends_.push_back(count() + (documents_->length(i) + length_ - 1) / length_);
  }
  int64_t count() const override { return ends_.empty() ? 0 : ends_.back(); }
  int64_t seq_length() const override { return length_; }

  void read(int64_t first, int64_t rows, Batch& batch) const override {
    const auto whole = at::TensorOptions(at::kLong);
    batch.tokens_BS = at::zeros({rows, length_}, whole), batch.labels_BS = at::full({rows, length_}, kIgnored, whole);
    int64_t* tokens = batch.tokens_BS.mutable_data_ptr<int64_t>();
    int64_t* labels = batch.labels_BS.mutable_data_ptr<int64_t>();
    for (int64_t row = first; row < first + rows; ++row, tokens += length_, labels += length_) {
      const auto found = std::upper_bound(ends_.begin(), ends_.end(), row);
      const int64_t document = found - ends_.begin(), before = document == 0 ? 0 : ends_[document - 1];
      const int64_t at = (row - before) * length_;
      documents_->read(document, at, std::min(length_, documents_->length(document) - at), tokens, labels);
    }
  }

 private:
  const std::shared_ptr<const Documents> documents_;
  int64_t length_;
  std::vector<int64_t> ends_;  // of each document's rows
};

std::string text_in(const std::string& path) {
  auto text = read_file(path, kMostBytes, ErrorCode::io);
  if (!text) throw fail(ErrorCode::io, "evaluation/perplexity: ", path, " is not there");
  refuse_packed(*text, "evaluation/perplexity", path);
  return *std::move(text);
}

}  // namespace

std::unique_ptr<Rows> rows_of_batches(std::shared_ptr<Dataset> dataset, const DatasetFacts& facts, DataPart part,
                                      int64_t batches, int64_t batch_size) {
  return std::make_unique<BatchRows>(std::move(dataset), facts, part, batches, batch_size);
}

std::unique_ptr<Rows> rows_of_documents(std::shared_ptr<const Documents> documents, int64_t length) {
  return std::make_unique<DocumentRows>(std::move(documents), length);
}

TextFiles::TextFiles(const std::vector<std::string>& files, const TextCodec& codec) {
  for (const std::string& path : files) {
    const std::string text = text_in(path);
    std::vector<int32_t> ids = codec.encode(text);
    bytes_ += static_cast<int64_t>(text.size());
    if (codec.begin())
      ids.insert(ids.begin(), *codec.begin());
    else if (!ids.empty())
      bytes_ -= codec.bytes_of(std::span(ids).first(1));  // nothing comes before it, so that it is not predicted
    if (ids.size() > 1 && !text.empty()) texts_.push_back(std::move(ids));
  }
}

int64_t TextFiles::length(int64_t document) const { return static_cast<int64_t>(texts_.at(document).size()) - 1; }

void TextFiles::read(int64_t document, int64_t first, int64_t count, int64_t* tokens, int64_t* labels) const {
  const std::vector<int32_t>& ids = texts_.at(document);
  for (int64_t i = 0; i < count; ++i) tokens[i] = ids[first + i], labels[i] = ids[first + i + 1];
}

}  // namespace drivetrain::perplexity
