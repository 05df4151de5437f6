#include "trie.h"

#include <algorithm>

namespace drivetrain::sentencepiece_models {
namespace {

// Sorted texts that share the bytes of a node.
struct Range {
  size_t begin, end, depth;
  uint32_t node;
};

}  // namespace

Trie::Trie(Texts texts) : nodes_(256), empty_(texts.empty()) {
  std::sort(texts.begin(), texts.end());
  nodes_[kRoot].parent = kNowhere - 1;         // taken, and nobody's child
  size_t free_for_one = 1, free_for_many = 1;  // where nodes with one child and with several look for a place from
  std::vector<unsigned char> bytes;            // of the children
  std::vector<Range> waiting{{0, texts.size(), 0, kRoot}};
  while (!waiting.empty()) {
    Range range = waiting.back();
    waiting.pop_back();
    if (range.begin < range.end && texts[range.begin].first.size() == range.depth)
      nodes_[range.node].value = texts[range.begin++].second;
    if (range.begin == range.end) continue;
    const auto byte_of = [&](size_t text) { return static_cast<unsigned char>(texts[text].first[range.depth]); };
    bytes.clear();
    for (size_t i = range.begin; i < range.end; ++i)
      if (bytes.empty() || bytes.back() != byte_of(i)) bytes.push_back(byte_of(i));
    const size_t base = free_base(bytes, bytes.size() == 1 ? free_for_one : free_for_many);
    nodes_[range.node].base = static_cast<uint32_t>(base);
    for (const unsigned char byte : bytes) nodes_[base ^ byte].parent = range.node;
    for (size_t i = range.begin; i < range.end;) {
      const unsigned char byte = byte_of(i);
      const size_t begin = i;
      while (i < range.end && byte_of(i) == byte) ++i;
      waiting.push_back({begin, i, range.depth + 1, static_cast<uint32_t>(base ^ byte)});
    }
  }
}

size_t Trie::free_base(const std::vector<unsigned char>& bytes, size_t& from) {
  const auto is_free = [&](size_t node) { return nodes_[node].parent == kNowhere; };
  while (from < nodes_.size() && !is_free(from)) ++from;
  int tried = 0;
  for (size_t at = from;; ++at) {
    if (at >= nodes_.size()) nodes_.resize(nodes_.size() + 256);
    if (!is_free(at)) continue;
    const size_t base = at ^ bytes[0];
    if (std::all_of(bytes.begin(), bytes.end(), [&](unsigned char byte) { return is_free(base ^ byte); })) return base;
    if (++tried == 64) from = at, tried = 0;  // to try every free place each time would take long
  }
}

std::pair<size_t, int32_t> Trie::longest(std::string_view text) const {
  std::pair<size_t, int32_t> found{0, kNoValue};
  uint32_t node = kRoot;
  for (size_t at = 0; at < text.size();) {
    node = next(node, text[at++]);
    if (node == kNowhere) break;
    if (value(node) != kNoValue) found = {at, value(node)};
  }
  return found;
}

}  // namespace drivetrain::sentencepiece_models
