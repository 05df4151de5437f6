// Which member of a blend gives sample k, and which of the member's samples it is. Weights are positive, in any unit.
#pragma once

#include <cstdint>
#include <vector>

namespace drivetrain::megatron {

struct BlendPlace {
  int64_t member = 0;
  int64_t sample = 0;  // of this member: the number of samples before that are its own
};

// The blend of the counter order. Any place is found at once, in as many steps as the member lies deep in a tree: each
// node rounds its left side's share of what came to it. The lightest two nodes are always joined first (Huffman 1952),
// so heavy members lie near the root. After any number n of samples a member of weight w (of a sum of 1) has given
// n * w, give or take an error: at most 1/2 with two members, less than 1 with three, less than 2 with any number.
// Value type; thread: const calls from any thread.
class TreeBlend {
 public:
  explicit TreeBlend(const std::vector<double>& weights);
  BlendPlace at(int64_t k) const;
  int64_t given(int64_t member, int64_t n) const;  // its samples among the first n

 private:
  struct Node {
    int64_t left = -1, right = -1;  // nodes; -1: this is member `member`
    int64_t member = -1, parent = -1;
    uint64_t share = 0;  // of the left side, in units of 2^-63
    int64_t to_left(int64_t n) const;
  };
  int64_t comes_to(int64_t node, int64_t n) const;  // of the first n samples
  std::vector<Node> nodes_;                         // members first, root last
};

// The blend of Megatron-Core 0.16.1 (helpers.cpp): sample k is of the member that is farthest behind, the first of
// several. Counts are kept at every 4096th sample; what lies between is counted again, and the last block is kept.
// Thread: one.
class GreedyBlend {
 public:
  // `exhaustive`: the weights are numbers of samples, and a member that has given all of its own gives no more.
  GreedyBlend(std::vector<double> weights, bool exhaustive);
  BlendPlace at(int64_t k);
  std::vector<int64_t> given(int64_t n);  // of each member among the first n

 private:
  int64_t next_member(int64_t k, const std::vector<int64_t>& given) const;
  const std::vector<int64_t>& counts_at(int64_t block);
  void count_block(int64_t block);

  std::vector<double> weights_, sizes_;  // sizes: only of an exhaustive blend
  std::vector<std::vector<int64_t>> counts_;
  int64_t block_ = -1;
  std::vector<BlendPlace> places_;  // of block_
};

// `weights` with a sum of 1, as numpy.sum adds them.
std::vector<double> normalized(const std::vector<double>& weights);

}  // namespace drivetrain::megatron
