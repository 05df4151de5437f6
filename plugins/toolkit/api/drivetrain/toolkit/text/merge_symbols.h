// Byte-pair encoding of one piece: of all neighbours that may become one symbol, those of the lowest rank do, of equal
// ones the first. One thread at a time; memory is used again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace drivetrain {

inline constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();

template <class Symbol>
class SymbolMerges {
 public:
  std::vector<Symbol> symbols;  // before merge(): all; afterwards: those that are left

  // find(left, right, made): the rank of the merge of two neighbours, with `made` set to what it makes, or kNoRank.
  // Fewer than 2^31 symbols.
  template <class Find>
  void merge(const Find& find) {
    if (symbols.size() <= kShort)
      merge_short(find);
    else
      merge_long(find);
  }

 private:
  // Symbols of pieces whose best merge is searched from left to right: for a word that is faster than a heap.
  static constexpr size_t kShort = 32;

  template <class Find>
  void merge_short(const Find& find) {
    uint32_t ranks[kShort];  // of a symbol with the one behind it
    Symbol made[kShort] = {};
    size_t count = symbols.size();
    const auto look = [&](size_t at) {
      ranks[at] = at + 1 < count ? find(symbols[at], symbols[at + 1], made[at]) : kNoRank;
    };
    for (size_t i = 0; i < count; ++i) look(i);
    while (count > 1) {
      size_t best = 0;
      for (size_t i = 1; i < count; ++i)
        if (ranks[i] < ranks[best]) best = i;
      if (ranks[best] == kNoRank) break;
      symbols[best] = made[best];
      --count;
      for (size_t i = best + 1; i < count; ++i)
        symbols[i] = symbols[i + 1], ranks[i] = ranks[i + 1], made[i] = made[i + 1];
      if (best > 0) look(best - 1);
      look(best);
    }
    symbols.resize(count);
  }

  // A heap of all merges that are possible or were so: one counts if it is what its symbol and the next one make now.
  template <class Find>
  void merge_long(const Find& find) {
    const auto count = static_cast<uint32_t>(symbols.size());
    nodes_.resize(count);
    heap_.clear();
    const auto look = [&](uint32_t at) {
      Node& node = nodes_[at];
      node.rank = node.after < count ? find(symbols[at], symbols[node.after], node.made) : kNoRank;
      return node.rank != kNoRank;
    };
    for (uint32_t i = 0; i < count; ++i) {
      nodes_[i].before = i == 0 ? count : i - 1, nodes_[i].after = i + 1;
      if (look(i)) heap_.push_back(entry(nodes_[i].rank, i));
    }
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!heap_.empty()) {
      const uint64_t top = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      heap_.pop_back();
      const auto at = static_cast<uint32_t>(top);
      Node& here = nodes_[at];
      if (here.rank != top >> 32) continue;
      Node& gone = nodes_[here.after];
      symbols[at] = here.made;
      here.after = gone.after, gone.rank = kNoRank;
      if (here.after < count) nodes_[here.after].before = at;
      for (const uint32_t left : {here.before, at}) {
        if (left >= count || !look(left)) continue;
        heap_.push_back(entry(nodes_[left].rank, left));
        std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
      }
    }
    size_t kept = 0;
    for (uint32_t at = 0; at < count; at = nodes_[at].after) symbols[kept++] = symbols[at];
    symbols.resize(kept);
  }
  static uint64_t entry(uint32_t rank, uint32_t at) { return uint64_t{rank} << 32 | at; }

  struct Node {
    uint32_t rank, before,
        after;  // rank: of it with the one behind it; before, after: the number of all if there is none
    Symbol made;
  };
  std::vector<Node> nodes_;
  std::vector<uint64_t> heap_;  // ranks and places
};

}  // namespace drivetrain
