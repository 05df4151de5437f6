// What block.cpp keeps and takes, told in its order.
#include <drivetrain/toolkit/layers/layer_memory.h>
#include <drivetrain/toolkit/units/memory_trace.h>

#include <algorithm>

#include "block.h"

namespace drivetrain::fused_block {
namespace {

namespace lm = layer_memory;

// Bytes of the block's tensors on this rank.
struct Sizes {
  Sizes(const BlockSpec& spec, const VisitShape& shape) : s(shape) {
    const auto n = [](int64_t count) { return static_cast<double>(count); };
    const double share = n(shape.tensor_ranks);
    hidden = n(spec.hidden), queries = n(spec.heads * spec.head_dim) / share;
    qkv = queries + 2 * n(spec.kv_heads * spec.head_dim) / share;
    ffn = n(spec.ffn) / share, first = is_gated(spec.activation) ? 2 * ffn : ffn;
  }
  double between(double columns) const { return s.rank_tokens * columns * s.element(); }
  double inside(double columns) const { return s.tokens * columns * s.element(); }
  double residual() const { return between(hidden); }
  const VisitShape& s;
  double hidden, queries, qkv, ffn, first;  // columns: of the residual stream, q, q with k and v, act, fc
};

AttentionShape attention_shape(const BlockSpec& spec, const VisitShape& s) {
  const auto heads = [&](int64_t count) { return static_cast<double>(count) / static_cast<double>(s.tensor_ranks); };
  AttentionShape a{s.rows,
                   s.positions(),
                   s.positions(),
                   heads(spec.heads),
                   heads(spec.kv_heads),
                   static_cast<double>(spec.head_dim)};
  a.dtype = s.dtype, a.dropout = spec.attention_dropout > 0, a.on_cpu = s.on_cpu;
  return a;
}

}  // namespace

std::optional<VisitMemory> Block::visit_memory(const VisitShape& shape, const KeepOfRegion& keep_of) const {
  const Kept keep(keep_of, true, options_, in_chunks());
  const Sizes z(spec_, shape);
  const AttentionMemory attention = attention_->memory(attention_shape(spec_, shape));
  const double residual = z.residual(), heads = z.inside(z.qkv), fc = z.inside(z.first), act = z.inside(z.ffn);
  const TensorSizes statistics = lm::norm_statistics(shape, shape.rank_tokens, spec_.rms);
  const bool behind = layers_.mlp_norm.here, before = layers_.norm2.here;  // as with attention
  // What a norm's output is kept as: by the layer behind it, or as it is.
  const auto kept_norm = [&](const Linear& layer, bool used, double of_output) {
    return keep.by_layers && used && layer.keeps_input() ? z.inside(z.hidden) : keep.norms ? of_output : 0;
  };
  // In the form that the layer behind it reads in backward: of a norm, of the activation.
  const double output1 = residual * reader1_.kept(), output2 = residual * reader2_.kept(), read_act = act * act_kept();
  const double norm1 = kept_norm(*layers_.qkv, keep.heads || keep.attention, output1),
               norm2 = kept_norm(*layers_.fc, keep.fc, output2);

  const double sums = spec_.parallel ? 1 : 2, norms = 2 * (before + behind);

  VisitMemory memory;
  memory.inputs.add(residual);
  memory.kept.add(residual, sums + 2 * behind).add(statistics, norms).add(norm1).add(norm2);
  if (keep.attention) memory.kept.add(attention.kept);
  if (keep.heads && !keep.attention) memory.kept.add(heads);
  if (keep.fc) memory.kept.add(fc);
  if (keep.act) memory.kept.add(read_act);

  const double dropped = spec_.hidden_dropout > 0 || spec_.residual_scale != 1 ? residual : 0;
  const TensorSizes again = lm::norm_again(shape, shape.rank_tokens, z.hidden),
                    norm_backward = lm::norm_backward(shape, shape.rank_tokens, z.hidden);
  MemoryTrace trace;
  // leave_backward; returns what its result takes.
  const auto leave = [&] {
    trace.take(dropped);
    if (!behind) return dropped;
    trace.take(residual).moment(norm_backward).free(dropped).free(residual).free(statistics);
    return residual;
  };
  // Of a norm's output that is made again, and its backward with what was kept for it.
  const auto again_if = [&](bool missing, double output) {
    if (!missing || !before) return;
    if (output == residual) trace.moment(again);
    trace.take(output);
  };
  const auto norm_back = [&](bool last) {
    trace.take(residual).moment(before ? norm_backward : TensorSizes());
    if (!last) trace.free(residual, spec_.parallel ? 1 : 2).free(before ? statistics : TensorSizes());
  };
  // Beside all that is there without GELU in products: the GPU may have none for the shape.
  const bool may_have_gelu = has_gelu(shape.on_cpu ? at::kCPU : at::kCUDA, shape.dtype);
  const TensorSizes workspace = may_have_gelu ? lm::gelu_product() : TensorSizes();
  // Whoever reads dfc computes it, and holds what it is computed from meanwhile.
  const ParamPtr fc_bias = layers_.fc->bias();
  const bool dfc_at_last = reader2_.takes && !(fc_bias && fc_bias->trainable);
  const double share =
      in_chunks() ? std::min(1.0, static_cast<double>(options_.mlp_chunk) * shape.rows / shape.rank_tokens) : 1;
  const double tokens = share * shape.tokens, piece = share * residual, fc_piece = share * fc, act_piece = share * act;
  const auto mlp_chunks_backward = [&] {
    const double of_mlp = leave();
    again_if(norm2 == 0, output2);
    trace.take(residual).take(piece).take(fc_piece);  // dy2, x, fc
    trace.moment(lm::activation(shape, tokens, z.first, spec_.bias)).take(act_piece).moment(workspace);
    trace.take(piece).take(act_piece).moment(workspace);  // ddelta, dact
    trace.moment(lm::weight_gradient(shape, tokens, z.hidden, z.ffn)).free(piece).free(act_piece);
    trace.take(fc_piece);  // dfc, or as much in 8 bits
    if (!dfc_at_last)
      trace.moment(lm::activation_backward(shape, tokens, z.first, spec_.bias)).free(fc_piece).free(act_piece);
    trace.take(piece).moment(lm::weight_gradient(shape, tokens, z.first, z.hidden));
    if (dfc_at_last) trace.free(fc_piece).free(act_piece);
    trace.free(piece, 2).free(fc_piece).free(of_mlp).free(norm2 > 0 ? norm2 : before ? output2 : 0);
  };
  const auto mlp_backward = [&] {
    if (!keep.fc) {
      again_if(true, output2);
      trace.take(fc);
    }
    if (!keep.act) {
      if (!act_reader_) trace.moment(lm::activation(shape, shape.tokens, z.first, spec_.bias));
      trace.take(read_act);
    }
    if (!keep.fc) trace.moment(workspace);
    const double of_mlp = leave();
    trace.take(act).moment(workspace);  // dact
    trace.moment(lm::weight_gradient(shape, shape.tokens, z.hidden, z.ffn)).free(of_mlp).free(read_act);
    trace.take(fc);  // dfc, or as much in 8 bits
    if (!dfc_at_last)
      trace.moment(lm::activation_backward(shape, shape.tokens, z.first, spec_.bias)).free(fc).free(act);
    again_if(norm2 == 0 && keep.fc, output2);
    trace.take(residual).moment(lm::weight_gradient(shape, shape.tokens, z.first, z.hidden));
    if (dfc_at_last) trace.free(fc).free(act);
    trace.free(norm2 > 0 ? norm2 : before ? output2 : 0).free(fc);
  };
  // Forward's, from the second norm on: the last block's may take more than any backward. Attention's part takes less
  // than its backward.
  const auto forward_working = [&] {
    const double written = before && !reader2_.computes && norm2 == 0 ? residual : 0;
    const double fc_made = keep.fc ? 0 : fc_piece, act_made = keep.act || act_reader_ ? 0 : act_piece;
    MemoryTrace forward;
    if (behind) forward.free(residual).free(statistics);  // kept, and not there yet
    // x, of which a block before keeps one summand if it is not parallel; then that of attention, or the sum with it.
    forward.take(residual, spec_.parallel ? 2 : 1).take(residual).take(written);
    if (!spec_.parallel) forward.free(residual);
    if (in_chunks()) forward.take(residual - written).take(piece);  // the result, where the norm's output is if it can
    forward.take(fc_made);
    if (!in_chunks()) forward.free(written);
    if (!act_reader_) forward.moment(lm::activation(shape, tokens, z.first, spec_.bias)).take(act_made);
    forward.moment(workspace).free(act_reader_ ? 0 : fc_made).take(piece);  // of the result
    if (in_chunks()) forward.free(piece, 2);
    forward.free(act_reader_ ? fc_made : act_made).take(dropped);
    if (behind) forward.take(residual).take(statistics);
    return forward.most();
  };
  trace.take(residual);  // dy
  in_chunks() ? mlp_chunks_backward() : mlp_backward();
  norm_back(false);
  // attention_backward
  const double qkv = spec_.qk_norm ? heads : 0;  // of which normed queries and keys are made again
  if (!keep.attention) {
    if (!keep.heads) {
      again_if(true, output1);
      trace.take(heads, 2).free(heads - qkv);
    } else {
      trace.take(qkv);
    }
    trace.moment(attention.forward).take(attention.kept).free(heads);
  } else {
    trace.take(qkv);
  }
  const double of_attention = leave();
  trace.take(z.inside(z.queries));
  trace.moment(lm::weight_gradient(shape, shape.tokens, z.hidden, z.queries)).free(of_attention);
  trace.moment(attention.backward).free(attention.kept);
  trace.take(heads, 2);  // of q, k and v, and of qkv
  if (spec_.qk_norm) trace.moment(lm::qk_norm_backward(shape, spec_, z.qkv));
  trace.free(heads).free(z.inside(z.queries)).free(qkv);
  again_if(norm1 == 0 && keep.heads, output1);
  trace.take(residual).moment(lm::weight_gradient(shape, shape.tokens, z.qkv, z.hidden));
  trace.free(norm1 > 0 ? norm1 : before ? output1 : 0).free(heads);
  norm_back(true);
  const TensorSizes forward = forward_working();
  memory.working = forward.bytes() > trace.most().bytes() ? forward : trace.most();
  return memory;
}

}  // namespace drivetrain::fused_block
