// The files of a stream as single documents. Thread: any.
#pragma once

#include <cstdint>

#include <drivetrain/dataset.h>

#include "documents.h"

namespace drivetrain::text {

// A document is the bytes of a file and the byte 0 that ends it, which is never a token but the last label.
class StreamDocuments : public Documents {
 public:
  // `stream` outlives it.
  explicit StreamDocuments(const Stream& stream) : stream_(stream) {}

  int64_t count() const override { return static_cast<int64_t>(stream_.begins.size()); }
  int64_t length(int64_t document) const override { return end(document) - begin(document); }
  void read(int64_t document, int64_t first, int64_t count, int64_t* tokens, int64_t* labels) const override {
    const int64_t at = begin(document) + first;
    for (int64_t i = 0; i < count; ++i) tokens[i] = byte(at + i), labels[i] = byte(at + i + 1);
  }

 private:
  int64_t begin(int64_t document) const { return stream_.begins[static_cast<size_t>(document)]; }
  int64_t end(int64_t document) const {
    return document + 1 < count() ? begin(document + 1) - 1 : static_cast<int64_t>(stream_.bytes.size());
  }
  int64_t byte(int64_t at) const {  // the stream ends without a byte 0
    return at < static_cast<int64_t>(stream_.bytes.size())
               ? static_cast<unsigned char>(stream_.bytes[static_cast<size_t>(at)])
               : 0;
  }

  const Stream& stream_;
};

}  // namespace drivetrain::text
