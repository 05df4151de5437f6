// The rows that a perplexity is computed of: batches of a dataset, or whole documents cut into windows, in which every
// position counts once. Main thread. Errors: io for unreadable data, config for data that do not fit.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <drivetrain/dataset.h>

#include <drivetrain/toolkit/evaluation/text_codec.h>

namespace drivetrain::perplexity {

class Rows {
 public:
  virtual ~Rows() = default;
  virtual int64_t count() const = 0;
  virtual int64_t seq_length() const = 0;
  virtual bool documents() const { return false; }  // several in a row
  virtual void read(int64_t first, int64_t rows, Batch& batch) const = 0;
};

// Batches 1 to `batches` of a part of a dataset, `batch_size` rows each. `dataset` is open.
std::unique_ptr<Rows> rows_of_batches(std::shared_ptr<Dataset> dataset, const DatasetFacts& facts, DataPart part,
                                      int64_t batches, int64_t batch_size);

// All positions of all documents, `length` of one document in a row at most; rows are filled up with labels -100.
// Without any document there are no rows.
std::unique_ptr<Rows> rows_of_documents(std::shared_ptr<const Documents> documents, int64_t length);

// Files of text, one document each. Files without text are left out.
class TextFiles final : public Documents {
 public:
  TextFiles(const std::vector<std::string>& files, const TextCodec& codec);
  int64_t count() const override { return static_cast<int64_t>(texts_.size()); }
  int64_t length(int64_t document) const override;
  void read(int64_t document, int64_t first, int64_t count, int64_t* tokens, int64_t* labels) const override;

  int64_t bytes() const { return bytes_; }  // that the labels stand for

 private:
  std::vector<std::vector<int32_t>> texts_;
  int64_t bytes_ = 0;
};

}  // namespace drivetrain::perplexity
