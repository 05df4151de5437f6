#include "eod.h"

namespace drivetrain::megatron {

void mask_labels(const int64_t* tokens, int64_t count, int64_t eod, int64_t* labels) {
  constexpr int64_t kIgnored = -100;
  for (int64_t i = 0; i < count; ++i)
    if (tokens[i] == eod) labels[i] = kIgnored;
}

void write_positions(const int64_t* tokens, int64_t count, int64_t eod, int64_t* positions) {
  int64_t next = 0;
  for (int64_t i = 0; i < count; ++i) {
    positions[i] = next++;
    if (tokens[i] == eod) next = 0;
  }
}

int64_t append_begins(const int64_t* tokens, int64_t count, int64_t eod, int64_t begin, std::vector<int64_t>& begins) {
  int64_t ended = 0;
  begins.push_back(begin);
  for (int64_t i = 0; i < count; ++i) {
    if (tokens[i] != eod) continue;
    ++ended;
    if (i + 1 < count) begins.push_back(begin + i + 1);
  }
  return ended;
}

}  // namespace drivetrain::megatron
