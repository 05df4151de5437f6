// The documents of a part for datasets that arrange them: file after file, in file order, those without a label left
// out. A document that the split cuts is two documents. Thread: const calls from any thread.
#pragma once

#include <drivetrain/dataset.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "order.h"

namespace drivetrain::megatron {

class DocumentList : public Documents {
 public:
  // Reads through the tables of the index files once. `eod`: labels behind it do not count; no value: all count.
  DocumentList(const std::vector<Member>& members, std::optional<int64_t> eod);

  int64_t count() const override { return count_; }
  int64_t length(int64_t document) const override;
  void read(int64_t document, int64_t first, int64_t count, int64_t* tokens, int64_t* labels) const override;

 private:
  struct Part {
    Member member;
    int64_t before = 0;             // documents of the parts before it
    int64_t first = 0, count = 0;   // documents in the file, those left out included
    std::vector<int64_t> left_out;  // of these, ascending, from 0
  };
  struct Bytes {
    const Part* part = nullptr;
    int64_t first = 0, end = 0;
  };
  struct Block;
  static Part part_of(const Member& member, int64_t before);
  Bytes find(int64_t document) const;
  static void fill(Block& block, const Part& part, int64_t first, int64_t count);
  const Block& block_with(const Part& part, int64_t at) const;

  std::vector<Part> parts_;
  int64_t count_ = 0;
  const std::optional<int64_t> eod_;
  const int64_t id_;
};

}  // namespace drivetrain::megatron
