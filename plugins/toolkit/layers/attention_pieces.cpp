#include <drivetrain/toolkit/layers/attention_pieces.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logaddexp.h>

namespace drivetrain {
namespace {

// The weight of a part's result: the share of its keys in the sum of all exponentials. [B, S, H, 1]
at::Tensor share_of_part(const at::Tensor& lse_of_part, const at::Tensor& lse) {
  return (lse_of_part - lse).exp().transpose(1, 2).unsqueeze(-1);
}

}  // namespace

void merge_attention(AttentionState& merged, const AttentionState& further) {
  if (!merged.lse.defined()) {
    merged.lse = further.lse, merged.out = further.out.to(further.lse.scalar_type());
    return;
  }
  const at::Tensor lse = at::logaddexp(merged.lse, further.lse);
  merged.out = merged.out * share_of_part(merged.lse, lse) + further.out * share_of_part(further.lse, lse);
  merged.lse = lse;
}

at::Tensor gather_pieces(Group& group, const at::Tensor& x) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.insert(sizes.begin(), group.size());
  const at::Tensor all = at::empty(sizes, x.options());
  group.all_gather(all, x.contiguous())->wait();
  sizes.erase(sizes.begin());
  sizes[1] *= group.size();
  return all.transpose(0, 1).reshape(sizes);
}

at::Tensor sum_pieces(Group& group, const at::Tensor& x) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[1] /= group.size();
  const at::Tensor own = at::empty(sizes, x.options());
  sizes.insert(sizes.begin() + 1, group.size());
  group.reduce_scatter(own, x.reshape(sizes).transpose(0, 1).contiguous())->wait();
  return own;
}

}  // namespace drivetrain
