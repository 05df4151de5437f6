// rank-00000.index.json: what the data file of a rank holds, and a digest per chunk of its bytes, its header included.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <drivetrain/checkpoint_store.h>
#include <drivetrain/value.h>

#include "digest.h"

namespace drivetrain::sharded {

// A slice in a file: elements of the box, row after row, in bytes `begin` to `end` of the file.
struct FileSlice {
  std::string name;
  std::vector<int64_t> shape;  // of the whole tensor
  at::ScalarType dtype = at::kFloat;
  StateBox box;
  uint64_t begin = 0, end = 0;
};

// Which save a file belongs to. Every file of a rank says so in itself; the data file in its header's metadata.
struct SaveIdentity {
  std::string tag;
  int64_t step = 0, rank = 0, world_size = 1;
  std::string save;  // 32 random hexadecimal digits, new for each save of each rank
  bool operator==(const SaveIdentity&) const = default;

  Value to_value() const;                        // an object of these members
  static SaveIdentity from(const Value& value);  // Error(config) if a member is missing or of another type
  std::string text() const;                      // "rank 1 of 4, tag step-00000040 (step 40), save 0123..."
};

struct RankIndex {
  SaveIdentity identity;
  uint64_t bytes = 0;        // of the data file
  uint64_t chunk_bytes = 0;  // of all chunks but the last
  std::vector<Digest> chunks;
  std::vector<FileSlice> slices;
};

std::string index_text(const RankIndex& index);
// Error(checkpoint) if the text is not what index_text gave, or if what it says cannot be.
RankIndex read_index(const std::string& path, const std::string& text);

// New for every call.
std::string random_id();

// A whole number of at least `least` that a member of `value` has. Error(config).
int64_t number_of(const Value& value, const std::string& key, int64_t least);
const Value& member_of(const Value& value, const std::string& key);

}  // namespace drivetrain::sharded
