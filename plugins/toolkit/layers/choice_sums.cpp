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

constexpr int64_t kChunk = 512;  // columns of which all open sums of a token stay in the first cache

// How the choices of a token are added: in ascending order of their experts, with how many of the last two open sums
// are added to each other behind each.
class ChoiceTree {
 public:
  explicit ChoiceTree(int64_t experts) : experts_(experts) {}

  void read(const int64_t* ids, int64_t choices) {
    leaves_.clear(), ids_ = ids;
    for (int64_t k = 0; k < choices; ++k)
      if (ids[k] >= 0) leaves_.push_back({k, 0});
    std::stable_sort(leaves_.begin(), leaves_.end(), [&](const Leaf& a, const Leaf& b) { return ids[a.k] < ids[b.k]; });
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

// Columns [0, columns) of the sum of one token; `open`: as many sums of kChunk as it has choices.
template <typename scalar_t, typename Sum = SumOf<scalar_t>>
void sum_columns(const ChoiceTree& tree, const scalar_t* rows, const int64_t* place, const Sum* weights, int64_t stride,
                 int64_t columns, Sum* open, scalar_t* to) {
  Sum* last = open - kChunk;
  for (const ChoiceTree::Leaf& leaf : tree.leaves()) {
    const scalar_t* const row = rows + place[leaf.k] * stride;
    const Sum weight = weights ? weights[leaf.k] : Sum(1);
    if (leaf.merges == 0) {
      last += kChunk;
      for (int64_t d = 0; d < columns; ++d) last[d] = weight * static_cast<Sum>(row[d]);
    } else {
      for (int64_t d = 0; d < columns; ++d) last[d] += weight * static_cast<Sum>(row[d]);
    }
    for (int64_t m = 1; m < leaf.merges; ++m, last -= kChunk)
      for (int64_t d = 0; d < columns; ++d) last[d - kChunk] += last[d];
  }
  if (tree.leaves().empty())
    std::fill_n(to, columns, scalar_t(0));
  else
    for (int64_t d = 0; d < columns; ++d) to[d] = static_cast<scalar_t>(open[d]);
}

at::Tensor sum_on_cpu(const at::Tensor& y_RD, const at::Tensor& weights_TK, const SortedRows& rows) {
  const int64_t T = rows.place_TK.size(0), K = rows.place_TK.size(1), D = y_RD.size(1);
  const at::Tensor y = y_RD.contiguous(), out = at::empty({T, D}, y.options());
  const int64_t *place = rows.place_TK.const_data_ptr<int64_t>(), *experts = rows.experts_TK.const_data_ptr<int64_t>();
  DRIVETRAIN_ROW_TYPES(y.scalar_type(), "sum_of_choices", [&] {
    using Sum = SumOf<scalar_t>;
    const scalar_t* from = y.const_data_ptr<scalar_t>();
    const Sum* weights = weights_TK.defined() ? weights_TK.const_data_ptr<Sum>() : nullptr;
    scalar_t* to = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, T, least_tokens(K, D), [&](int64_t begin, int64_t end) {
      std::vector<Sum> open(static_cast<size_t>(std::max<int64_t>(K, 1) * kChunk));
      ChoiceTree tree(rows.counts_E.size(0));
      for (int64_t t = begin; t < end; ++t) {
        tree.read(experts + t * K, K);
        for (int64_t d = 0; d < D; d += kChunk)
          sum_columns(tree, from + d, place + t * K, weights ? weights + t * K : nullptr, D, std::min(kChunk, D - d),
                      open.data(), to + t * D + d);
      }
    });
  });
  return out;
}

at::Tensor sum_by_operators(const at::Tensor& y, const at::Tensor& weights_TK, const SortedRows& rows) {
  const at::Tensor by_expert = std::get<1>(at::sort(rows.experts_TK, true, 1, false));
  const at::Tensor place = rows.place_TK.gather(1, by_expert).clamp_max(std::max<int64_t>(y.size(0) - 1, 0));
  at::Tensor weights = rows.experts_TK.ge(0).to(sum_type(y));
  if (weights_TK.defined()) weights = weights_TK.masked_fill(rows.experts_TK.lt(0), 0);
  weights = weights.gather(1, by_expert);
  at::Tensor sum = at::zeros({place.size(0), y.size(1)}, y.options().dtype(sum_type(y)));
  if (y.size(0) == 0) return sum.to(y.scalar_type());
  for (int64_t k = 0; k < place.size(1); ++k)
    sum.add_(at::index_select(y, 0, place.select(1, k)).to(sum.scalar_type()).mul_(weights.select(1, k).unsqueeze(1)));
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
