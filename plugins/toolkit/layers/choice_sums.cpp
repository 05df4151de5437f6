#include "choice_sums.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

namespace drivetrain {
namespace {

constexpr int64_t kChunk = 512;  // columns that are summed at a time: the open sums of a token stay in the first cache

// How the choices of a token are added: in ascending order of their experts; after each, the last two open sums are
// added to each other so many times.
class ChoiceTree {
 public:
  explicit ChoiceTree(int64_t experts) : experts_(experts) {}

  void read(const int64_t* ids, int64_t choices) {
    leaves_.clear(), ids_ = ids;
    for (int64_t k = 0; k < choices; ++k) {
      if (ids[k] < 0) continue;
      size_t at = leaves_.size();  // choices are few
      leaves_.push_back({k, 0});
      for (; at > 0 && ids[leaves_[at - 1].k] > ids[k]; --at) leaves_[at] = leaves_[at - 1];
      leaves_[at] = {k, 0};
    }
    if (!leaves_.empty()) join(0, leaves_.size(), 0, experts_);
  }

  struct Leaf {
    int64_t k, merges;
  };
  const std::vector<Leaf>& leaves() const { return leaves_; }

 private:
  // Leaves [begin, end), at least one, of experts [low, high).
  void join(size_t begin, size_t end, int64_t low, int64_t high) {
    if (end - begin == 1) return;
    const int64_t middle = low + (high - low + 1) / 2;
    if (middle == high) {  // one expert, chosen more than once
      for (size_t i = begin + 1; i < end; ++i) ++leaves_[i].merges;
      return;
    }
    size_t cut = begin;
    while (cut < end && ids_[leaves_[cut].k] < middle) ++cut;
    if (cut > begin) join(begin, cut, low, middle);
    if (cut < end) join(cut, end, middle, high);
    if (cut > begin && cut < end) ++leaves_[end - 1].merges;
  }

  const int64_t experts_;
  const int64_t* ids_ = nullptr;
  std::vector<Leaf> leaves_;
};

// A token's rows: row k begins at rows[place[k] * stride].
template <typename scalar_t, typename Sum>
struct TokenRows {
  const scalar_t* rows;
  const int64_t* place;
  const Sum* weights;  // null: 1 each
  int64_t stride;
};

// Columns [first, first + count) of the sum of one token; `open`: room for the open sums, kChunk each.
template <typename scalar_t, typename Sum>
void sum_columns(const ChoiceTree& tree, const TokenRows<scalar_t, Sum>& token, int64_t first, int64_t count,
                 std::vector<Sum>& open, scalar_t* to) {
  int64_t sums = 0;
  const auto sum = [&](int64_t i) { return open.data() + i * kChunk; };
  for (const ChoiceTree::Leaf& leaf : tree.leaves()) {
    const scalar_t* const row = token.rows + token.place[leaf.k] * token.stride + first;
    const Sum weight = token.weights ? token.weights[leaf.k] : Sum(1);
    if (leaf.merges == 0) {
      if (static_cast<int64_t>(open.size()) < ++sums * kChunk) open.resize(static_cast<size_t>(sums * kChunk));
      Sum* const last = sum(sums - 1);
      for (int64_t d = 0; d < count; ++d) last[d] = weight * static_cast<Sum>(row[d]);
      continue;
    }
    Sum* last = sum(sums - 1);
    for (int64_t d = 0; d < count; ++d) last[d] += weight * static_cast<Sum>(row[d]);
    for (int64_t m = 1; m < leaf.merges; ++m) {
      const Sum* const right = sum(--sums);
      last = sum(sums - 1);
      for (int64_t d = 0; d < count; ++d) last[d] += right[d];
    }
  }
  for (int64_t d = 0; d < count; ++d) to[first + d] = sums > 0 ? static_cast<scalar_t>(open[size_t(d)]) : scalar_t(0);
}

at::Tensor sum_on_cpu(const at::Tensor& y_RD, const at::Tensor& weights_TK, const SortedRows& rows) {
  const int64_t T = rows.place_TK.size(0), K = rows.place_TK.size(1), D = y_RD.size(1);
  const at::Tensor y = y_RD.contiguous(), out = at::empty({T, D}, y.options());
  const int64_t *place = rows.place_TK.const_data_ptr<int64_t>(), *experts = rows.experts_TK.const_data_ptr<int64_t>();
  DRIVETRAIN_ROW_TYPES(y.scalar_type(), "sum_of_choices", [&] {
    using Sum = SumOf<scalar_t>;
    const scalar_t* const from = y.const_data_ptr<scalar_t>();
    const Sum* const weights = weights_TK.defined() ? weights_TK.const_data_ptr<Sum>() : nullptr;
    scalar_t* const to = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, T, least_tokens(K, D), [&](int64_t begin, int64_t end) {
      std::vector<Sum> open;
      ChoiceTree tree(rows.counts_E.size(0));
      for (int64_t t = begin; t < end; ++t) {
        tree.read(experts + t * K, K);
        const TokenRows<scalar_t, Sum> token{from, place + t * K, weights ? weights + t * K : nullptr, D};
        for (int64_t d = 0; d < D; d += kChunk) sum_columns(tree, token, d, std::min(kChunk, D - d), open, to + t * D);
      }
    });
  });
  return out;
}

// Rows of nobody are left out, not multiplied by zero: one that is not finite is nobody's.
at::Tensor sum_by_operators(const at::Tensor& y, const at::Tensor& weights_TK, const SortedRows& rows) {
  at::Tensor sum = at::zeros({rows.place_TK.size(0), y.size(1)}, y.options().dtype(sum_type(y)));
  if (y.size(0) == 0) return sum.to(y.scalar_type());
  const auto [ids, by_expert] = at::sort(rows.experts_TK, true, 1, false);
  const at::Tensor place = rows.place_TK.gather(1, by_expert).clamp_max(y.size(0) - 1), nobody = ids.lt(0);
  const at::Tensor weights = weights_TK.defined() ? weights_TK.gather(1, by_expert) : at::Tensor();
  for (int64_t k = 0; k < place.size(1); ++k) {
    at::Tensor row = at::index_select(y, 0, place.select(1, k));
    if (weights.defined()) row = row.to(sum.scalar_type()).mul_(weights.select(1, k).unsqueeze(1));
    sum.add_(row.masked_fill_(nobody.select(1, k).unsqueeze(1), 0));
  }
  return sum.to(y.scalar_type());
}

}  // namespace

int64_t least_tokens(int64_t choices, int64_t columns) {
  constexpr int64_t kLeastElements = int64_t{1} << 15;
  return std::max<int64_t>(kLeastElements / std::max<int64_t>(choices * columns, 1), 1);
}

at::Tensor sum_of_choices(const at::Tensor& y_RD, const at::Tensor& weights_TK, const SortedRows& rows) {
  return y_RD.is_cpu() ? sum_on_cpu(y_RD, weights_TK, rows) : sum_by_operators(y_RD, weights_TK, rows);
}

}  // namespace drivetrain
