// The order of conversations for training: every one once per epoch, or files by their weights. A row is computed from
// its number alone, so ranks and resumption change nothing. Const calls from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <drivetrain/dataset.h>

namespace drivetrain::instruction {

class Mixture {
 public:
  // `counts`: conversations of each file, which follow each other. `weights`: shares of the rows, one per file; empty:
  // as many rows as conversations. Error(config) for a file with a weight and without conversations.
  Mixture(const std::vector<int64_t>& counts, const std::vector<double>& weights);

  // Rows of an epoch: as many as there are conversations.
  int64_t rows() const { return rows_; }
  // Rows of an epoch that come from a file.
  int64_t rows_of(size_t file) const { return parts_[file].rows; }
  // The conversation of a row, counted from the first epoch on. `site`: of the random order.
  int64_t at(int64_t row, uint64_t site) const;
  // The conversation of the i-th document of the first epoch, file by file.
  int64_t document(int64_t i, uint64_t site) const { return in_part(i, 0, site); }

 private:
  struct Part {
    int64_t first, count;     // conversations of the file
    int64_t first_row, rows;  // of an epoch, before the rows of all files are mixed
  };
  int64_t in_part(int64_t i, int64_t epoch, uint64_t site) const;

  std::vector<Part> parts_;
  int64_t rows_ = 0;
};

// The rows of one epoch as documents, for dataset/packed. `all` and `mixture` outlive it.
class MixedDocuments : public Documents {
 public:
  MixedDocuments(const Documents& all, const Mixture& mixture, uint64_t site)
      : all_(all), mixture_(mixture), site_(site) {}
  int64_t count() const override { return mixture_.rows(); }
  int64_t length(int64_t document) const override { return all_.length(place(document)); }
  void read(int64_t document, int64_t first, int64_t count, int64_t* tokens, int64_t* labels) const override {
    all_.read(place(document), first, count, tokens, labels);
  }
  std::string origin(int64_t document) const override { return all_.origin(place(document)); }

 private:
  int64_t place(int64_t document) const { return mixture_.document(document, site_); }

  const Documents& all_;
  const Mixture& mixture_;
  const uint64_t site_;
};

}  // namespace drivetrain::instruction
