// The MLP of some positions at a time: what is as wide as the MLP never exists for the whole sequence. Forward keeps
// nothing of it, and backward runs each chunk's forward again before its own.
//
// Source: Bekman et al. 2025, "Arctic Long Sequence Training", section 3.1 (TiledMLP).
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "block_parts.h"

namespace drivetrain::fused_block {
namespace {

// Calls visit(first, positions) for each chunk.
template <class Visit>
void each_chunk(int64_t positions, int64_t most, const Visit& visit) {
  for (int64_t first = 0; first < positions; first += most) visit(first, std::min(most, positions - first));
}

at::Tensor piece(const at::Tensor& x_BSD, int64_t first, int64_t positions) {
  return x_BSD.narrow(1, first, positions).contiguous();
}

// Its y alone is read.
ops::Normed normed_piece(const ops::Normed& norm, int64_t first, int64_t positions) {
  return {piece(norm.y, first, positions), norm.sum, {}, {}};
}

bool has_adapters(const Linear& layer) {
  const std::vector<ParamPtr> params = layer.params();
  return std::any_of(params.begin(), params.end(), [](const ParamPtr& p) { return p->role == ParamRole::adapter; });
}

}  // namespace

bool may_be_cut(const BlockLayers& layers) { return !has_adapters(*layers.fc) && !has_adapters(*layers.mlp_proj); }

at::Tensor Block::mlp_chunks_forward(Activations& a, const Kept& keep) const {
  // In the place of the norm's output, of which each piece is read before.
  at::Tensor delta = layers_.norm2.here && !keep.norms ? a.norm2.y : at::empty_like(a.norm2.y);
  each_chunk(delta.size(1), options_.mlp_chunk, [&](int64_t first, int64_t positions) {
    ops::Normed normed = normed_piece(a.norm2, first, positions);
    KeptOperand none;
    Inner h;
    first_product({reader2_, normed, none}, h, Replace::no);
    restore_act(h);
    if (h.act.defined()) h.fc.reset();
    delta.narrow(1, first, positions).copy_(second_product(h, false));
  });
  if (!keep.norms) a.norm2.y.reset();
  return leave(delta, a.mlp_norm, layers_.mlp_norm, a.dropout, a.key2);
}

at::Tensor Block::mlp_chunks_backward(const Tensors& dy, Activations& a, WeightWork& work) const {
  at::Tensor ddelta = leave_backward(dy[1], a.mlp_norm, layers_.mlp_norm, a.dropout, a.key2);
  restore_norm(a.norm2, layers_.norm2);
  at::Tensor dy2 = at::empty_like(a.norm2.y);
  each_chunk(dy2.size(1), options_.mlp_chunk, [&](int64_t first, int64_t positions) {
    ops::Normed normed = normed_piece(a.norm2, first, positions);
    KeptOperand none;
    const NormOutput x = {reader2_, normed, none};
    Inner h;
    first_product(x, h, Replace::yes);
    restore_act(h);
    const ops::Operand dfc = second_backward(piece(ddelta, first, positions), h, work);
    dy2.narrow(1, first, positions).copy_(back_to_norm(x, dfc, work));
  });
  a.norm2.y.reset(), ddelta.reset();
  const at::Tensor ds2 = norm_backward(dy2, dy[0], a.norm2, layers_.norm2);
  a.norm2 = {};
  return ds2;
}

}  // namespace drivetrain::fused_block
