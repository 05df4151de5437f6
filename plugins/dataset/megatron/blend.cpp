#include "blend.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

namespace drivetrain::megatron {
namespace {

constexpr int64_t kGreedyBlock = 4096;

// numpy.sum of float64: eight sums side by side, and halves of what has more than 128 elements.
double numpy_sum(const double* values, size_t count) {
  if (count < 8) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) sum += values[i];
    return sum;
  }
  if (count > 128) {
    const size_t half = count / 2 - count / 2 % 8;
    return numpy_sum(values, half) + numpy_sum(values + half, count - half);
  }
  double s[8];
  std::copy(values, values + 8, s);
  size_t i = 8;
  for (; i + 8 <= count; i += 8)
    for (size_t j = 0; j < 8; ++j) s[j] += values[i + j];
  double sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
  for (; i < count; ++i) sum += values[i];
  return sum;
}

}  // namespace

std::vector<double> normalized(const std::vector<double>& weights) {
  const double sum = numpy_sum(weights.data(), weights.size());
  std::vector<double> shares;
  for (const double w : weights) shares.push_back(w / sum);
  return shares;
}

TreeBlend::TreeBlend(const std::vector<double>& weights) {
  using Entry = std::pair<double, int64_t>;  // equal weights: the earlier node first
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> lightest;
  for (const double w : weights) {
    lightest.emplace(w, static_cast<int64_t>(nodes_.size()));
    Node& leaf = nodes_.emplace_back();
    leaf.member = static_cast<int64_t>(nodes_.size()) - 1;
  }
  while (lightest.size() > 1) {
    const Entry light = lightest.top();
    lightest.pop();
    const Entry heavy = lightest.top();
    lightest.pop();
    const auto id = static_cast<int64_t>(nodes_.size());
    const double sum = heavy.first + light.first;
    Node& node = nodes_.emplace_back();
    node.left = heavy.second, node.right = light.second;
    node.share = static_cast<uint64_t>(std::ldexp(heavy.first / sum, 63));
    nodes_[static_cast<size_t>(node.left)].parent = nodes_[static_cast<size_t>(node.right)].parent = id;
    lightest.emplace(sum, id);
  }
}

// Integers: the same on every machine, and no sample more comes to a side than to both.
int64_t TreeBlend::Node::to_left(int64_t n) const {
  __extension__ using Wide = unsigned __int128;
  return static_cast<int64_t>((Wide{static_cast<uint64_t>(n)} * share + (uint64_t{1} << 62)) >> 63);
}

BlendPlace TreeBlend::at(int64_t k) const {
  const Node* node = &nodes_.back();
  while (node->left >= 0) {
    const int64_t before = node->to_left(k);
    const bool left = node->to_left(k + 1) > before;
    k = left ? before : k - before;
    node = &nodes_[static_cast<size_t>(left ? node->left : node->right)];
  }
  return {node->member, k};
}

int64_t TreeBlend::given(int64_t member, int64_t n) const { return comes_to(member, n); }

int64_t TreeBlend::comes_to(int64_t id, int64_t n) const {
  const int64_t parent = nodes_[static_cast<size_t>(id)].parent;
  if (parent < 0) return n;
  const Node& above = nodes_[static_cast<size_t>(parent)];
  const int64_t all = comes_to(parent, n), left = above.to_left(all);
  return above.left == id ? left : all - left;
}

GreedyBlend::GreedyBlend(std::vector<double> weights, bool exhaustive) : weights_(std::move(weights)) {
  if (exhaustive) {
    double sum = 0;
    for (const double size : weights_) sum += size;
    sizes_ = weights_;
    for (double& w : weights_) w /= sum;
  }
  counts_.emplace_back(weights_.size(), 0);
}

int64_t GreedyBlend::next_member(int64_t k, const std::vector<int64_t>& given) const {
  const double samples = std::max(static_cast<double>(k), 1.0);
  int64_t member = 0;
  double most = std::numeric_limits<double>::lowest();
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (!sizes_.empty() && static_cast<double>(given[i]) >= sizes_[i]) continue;
    const double behind = weights_[i] * samples - static_cast<double>(given[i]);
    if (behind > most) most = behind, member = static_cast<int64_t>(i);
  }
  return member;
}

const std::vector<int64_t>& GreedyBlend::counts_at(int64_t block) {
  while (static_cast<int64_t>(counts_.size()) <= block) {
    std::vector<int64_t> given = counts_.back();
    const int64_t first = (static_cast<int64_t>(counts_.size()) - 1) * kGreedyBlock;
    for (int64_t k = first; k < first + kGreedyBlock; ++k) ++given[static_cast<size_t>(next_member(k, given))];
    counts_.push_back(std::move(given));
  }
  return counts_[static_cast<size_t>(block)];
}

void GreedyBlend::count_block(int64_t block) {
  std::vector<int64_t> given = counts_at(block);
  places_.clear();
  for (int64_t k = block * kGreedyBlock; k < (block + 1) * kGreedyBlock; ++k) {
    const int64_t member = next_member(k, given);
    places_.push_back({member, given[static_cast<size_t>(member)]++});
  }
  block_ = block;
}

BlendPlace GreedyBlend::at(int64_t k) {
  if (k / kGreedyBlock != block_) count_block(k / kGreedyBlock);
  return places_[static_cast<size_t>(k % kGreedyBlock)];
}

std::vector<int64_t> GreedyBlend::given(int64_t n) {
  std::vector<int64_t> given = counts_at(n / kGreedyBlock);
  for (int64_t k = n / kGreedyBlock * kGreedyBlock; k < n; ++k) ++given[static_cast<size_t>(next_member(k, given))];
  return given;
}

}  // namespace drivetrain::megatron
