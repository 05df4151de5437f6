#include "permutation.h"

#include <drivetrain/random.h>

#include <cmath>

namespace drivetrain::megatron {
namespace {

// A number of [0, most) that depends on all of these.
uint64_t drawn(uint64_t digit, uint32_t round, const PermutationKey& key, uint64_t most) {
  const auto words = philox({static_cast<uint32_t>(digit), key.part << 16 | round, key.member, key.epoch},
                            {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((Wide{uint64_t{words[1]} << 32 | words[0]} * most) >> 64);
}

}  // namespace

int64_t permuted(int64_t at, int64_t size, const PermutationKey& key) {
  const auto count = static_cast<uint64_t>(size);
  auto rows = static_cast<uint64_t>(std::sqrt(static_cast<double>(count)));
  while (rows * rows < count) ++rows;
  const uint64_t columns = (count + rows - 1) / rows;  // rows * columns is less than size + rows
  const uint32_t rounds = rows > 64 ? 8 : 16;          // small digits are mixed more slowly
  auto x = static_cast<uint64_t>(at);
  do {
    uint64_t row = x / columns, column = x % columns;
    for (uint32_t round = 0; round < rounds; round += 2) {
      row = (row + drawn(column, round, key, rows)) % rows;
      column = (column + drawn(row, round + 1, key, columns)) % columns;
    }
    x = row * columns + column;
  } while (x >= count);
  return static_cast<int64_t>(x);
}

}  // namespace drivetrain::megatron
