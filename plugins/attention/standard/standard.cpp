// Attention by its formula in ATen: every argument, any head size, any floating dtype, any device. The reference for
// the others, and the way out where they refuse.
//
// Source: Vaswani et al. 2017, eq. 1; the backward pass by hand as in Dao et al. 2022, appendix B.2. Legend of
// attention.h, and R = H / G query heads per key/value head, GB = B * G. Scores are kept in one B * H * S * T buffer
// that is worked on in place; backward computes them again from q, k and lse, so that merged lse and out count.
// bfloat16 and float16 are computed in float32.
#include <drivetrain/attention.h>

#include <ATen/ops/abs.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/ge.h>
#include <ATen/ops/log.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>

#include <limits>

#include <drivetrain/plan_context.h>
#include <drivetrain/random.h>
#include <drivetrain/services.h>
#include <drivetrain/toolkit/layers/by_document.h>
#include <drivetrain/toolkit/layers/visible_keys.h>
#include <drivetrain/toolkit/units/memory_trace.h>

namespace {

using namespace drivetrain;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::ScalarType compute_type(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// [B, N, X, D] -> [B * X, N, D]
at::Tensor by_head(const at::Tensor& x) {
  return x.to(compute_type(x)).transpose(1, 2).reshape({x.size(0) * x.size(2), x.size(1), x.size(3)});
}

// [B, S, H, D] -> [GB, R * S, D]: the query heads of a group stand below each other, so its keys are read once for all.
at::Tensor by_group(const at::Tensor& x, int64_t G) {
  return x.to(compute_type(x)).transpose(1, 2).reshape({x.size(0) * G, x.size(2) / G * x.size(1), x.size(3)});
}

// Back to [B, N, X, D] of the model's dtype.
at::Tensor by_position(const at::Tensor& x, const at::Tensor& like) {
  return x.view({like.size(0), like.size(2), like.size(1), like.size(3)})
      .transpose(1, 2)
      .contiguous()
      .to(like.scalar_type());
}

// The number of each position's document, [B, S].
at::Tensor document_numbers(const Varlen& varlen, int64_t B, int64_t S, at::Device device) {
  at::Tensor of_position = at::empty({B, S}, at::kLong);
  int64_t* id = of_position.mutable_data_ptr<int64_t>();
  for (size_t n = 0; n + 1 < varlen.cu_seqlens.size(); ++n)
    std::fill(id + varlen.cu_seqlens[n], id + varlen.cu_seqlens[n + 1], static_cast<int64_t>(n));
  return of_position.to(device);
}

// [S, T] or [B, 1, S, T], true where a query does not see a key; undefined if every query sees every key.
at::Tensor hidden_keys(const AttentionArgs& args, int64_t B, int64_t S, int64_t T, at::Device device) {
  at::Tensor hidden;
  const auto add = [&](const at::Tensor& more) { hidden = hidden.defined() ? more.logical_or(hidden) : more; };
  if (args.causal || args.window > 0) {
    const auto type = at::TensorOptions().dtype(at::kLong).device(device);
    const at::Tensor distance =
        at::arange(args.q_offset, args.q_offset + S, type).unsqueeze(1).sub(at::arange(T, type).unsqueeze(0));
    if (args.causal) add(distance.lt(0));
    if (args.window > 0) add(distance.abs().ge(args.window));
  }
  if (!args.varlen.cu_seqlens.empty()) {
    const at::Tensor of_position = document_numbers(args.varlen, B, S, device).unsqueeze(1);
    add(of_position.unsqueeze(3).ne(of_position.unsqueeze(2)));
  }
  return hidden;
}

// scale * q k^T, capped, with -infinity where hidden, [B, H, S, T]. `slope`, if asked for: of the cap, the derivative
// 1 - (s / softcap)^2 of what it makes of a score; undefined without a cap.
at::Tensor masked_scores(const at::Tensor& q, const at::Tensor& k, const AttentionArgs& args,
                         at::Tensor* slope = nullptr) {
  const int64_t B = q.size(0), S = q.size(1), H = q.size(2), T = k.size(1);
  const at::Tensor q_GBRSD = by_group(q, k.size(2)), k_GBTD = by_head(k);
  at::Tensor scores =
      at::baddbmm(at::empty({1, 1, 1}, q_GBRSD.options()), q_GBRSD, k_GBTD.transpose(1, 2), 0, args.scale);
  scores = scores.view({B, H, S, T});
  if (args.softcap > 0) {
    scores.mul_(1 / args.softcap).tanh_();
    if (slope) *slope = scores.mul(scores).neg_().add_(1);
    scores.mul_(args.softcap);
  }
  const at::Tensor hidden = hidden_keys(args, B, S, T, q.device());
  if (hidden.defined()) scores.masked_fill_(hidden, -kInfinity);
  return scores;
}

// 1 / (1 - p) where a probability is kept, 0 elsewhere; undefined without dropout.
at::Tensor kept(const at::Tensor& scores, const AttentionArgs& args) {
  if (args.dropout == 0) return {};
  at::Tensor factor = at::empty(scores.sizes(), scores.options().dtype(at::kFloat));
  fill_uniform(factor, args.key);
  return factor.ge_(args.dropout).mul_(1 / (1 - args.dropout)).to(scores.scalar_type());
}

// Bytes of the tensors below in the type they are computed in.
struct WideSizes {
  explicit WideSizes(const AttentionShape& s) : wide(s.dtype == at::kDouble ? 8 : 4) {
    scores = s.rows * s.heads * s.queries * s.keys * wide;
    q = s.query_bytes() / s.element() * wide, k = s.key_bytes() / s.element() * wide;
    distance = s.queries * s.keys * 8, hidden = s.queries * s.keys;
  }
  double wide, scores, q, k, distance, hidden;
};

// masked_scores, which is left with the scores.
void trace_scores(MemoryTrace& trace, const WideSizes& z) {
  trace.take(z.q).take(z.k).take(z.scores);
  trace.moment(TensorSizes().add(z.distance).add(z.hidden)).free(z.q).free(z.k);
}

TensorSizes forward_sizes(const AttentionShape& s, const WideSizes& z) {
  MemoryTrace trace;
  trace_scores(trace, z);
  if (s.dropout) trace.moment(z.scores);
  trace.take(z.k).take(z.q).free(z.k).free(z.scores);                 // v by head, out
  trace.take(z.q).take(s.dtype == at::kFloat ? 0 : s.query_bytes());  // by position, in the model's type
  return trace.most();
}

TensorSizes backward_sizes(const AttentionShape& s, const WideSizes& z) {
  const double narrow_q = z.wide == s.element() ? 0 : s.query_bytes(), narrow_k = narrow_q > 0 ? s.key_bytes() : 0;
  MemoryTrace trace;
  trace.take(z.q, 2);  // dout and q by group
  trace_scores(trace, z);
  if (s.softcap) trace.take(z.scores);                 // the cap's slope
  if (s.dropout) trace.take(z.scores, 2);              // the mask's factors, and p times them
  trace.take(z.k).take(z.k).take(z.scores).free(z.k);  // dv; ds with v by head
  trace.moment(z.q, 2);                                // delta: out by group, and times dout
  // dq with k by head, dk, and all three by position: temporaries of one statement.
  trace.take(z.k).take(z.q, 2).take(narrow_q).take(z.k, 2).take(narrow_k).take(z.k).take(narrow_k);
  return trace.most();
}

// Of one product over all queries and keys.
AttentionMemory memory_of_product(const AttentionShape& s) {
  const WideSizes z(s);
  AttentionMemory memory;
  memory.kept.add(s.query_bytes(), 2).add(s.key_bytes(), 2).add(s.lse_bytes());
  memory.forward = forward_sizes(s, z), memory.backward = backward_sizes(s, z);
  return memory;
}

// Under a window, of the largest of its blocks, beside what all of them write to. A causal mask is taken for granted:
// without one a window has keys on both sides.
AttentionMemory memory_of(const AttentionShape& s) {
  const double block = static_cast<double>(window_block(static_cast<int64_t>(s.window)));
  AttentionMemory memory = memory_of_product(s);
  if (s.window <= 0 || s.window >= s.keys || s.dropout) return memory;
  AttentionShape part = s, wide = s;
  part.queries = std::min(block, s.queries), part.keys = std::min(s.window + block - 1, s.keys);
  part.dtype = wide.dtype = s.dtype == at::kDouble ? at::kDouble : at::kFloat;
  const AttentionMemory one = memory_of_product(part);
  const double q = wide.query_bytes(), k = wide.key_bytes(), copies = s.dtype == wide.dtype ? 0 : 1;
  memory.forward = TensorSizes().add(s.query_bytes()).add(one.forward);
  memory.backward = TensorSizes().add(q, 1 + 3 * copies).add(k, 2 + 2 * copies).add(one.backward);
  return memory;
}

class Standard : public Attention {
 public:
  Standard(const NoOptions&, const Services&) {}

  void plan(PlanContext& ctx) override {
    Attention::plan(ctx);
    ctx.capturable();
  }

  AttentionAbilities abilities() const override {
    AttentionAbilities can;
    can.dtypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
    can.gqa = can.varlen = can.window = can.q_offset = can.dropout = can.returns_lse = true;
    can.partial_keys = can.partial_heads = can.softcap = true;
    return can;
  }

  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const override {
    check("attention/standard", q, k, v, args);
    if (args.dropout > 0 && args.q_offset != 0)
      throw fail(ErrorCode::config, "attention/standard: dropout ", args.dropout, " with q_offset ", args.q_offset,
                 " is not supported: random numbers are those of whole sequences; set attention_dropout to 0");
    if (one_by_one(args))
      return forward_by_document(q, k, v, args, [this](const auto&... one) { return forward_row(one...); });
    return forward_row(q, k, v, args);
  }

  Tensors backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) const override {
    if (one_by_one(args))
      return backward_by_document(dout, state, args, [this](const auto&... one) { return backward_row(one...); });
    return backward_row(dout, state, args);
  }

  AttentionMemory memory(const AttentionShape& shape) const override { return memory_of(shape); }

 private:
  // With dropout documents stay in one product, and so do windows: random numbers are those of whole rows.
  static bool one_by_one(const AttentionArgs& args) { return !args.varlen.cu_seqlens.empty() && args.dropout == 0; }
  static bool by_window(const AttentionArgs& args) { return args.window > 0 && args.dropout == 0; }

  AttentionState forward_row(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const AttentionArgs& full_args) const {
    const AttentionArgs args = without_idle_masks(full_args, q.size(1), k.size(1));
    if (!by_window(args)) return compute(q, k, v, args);
    return forward_by_window(q, k, v, args, [this](const auto&... block) { return compute(block...); });
  }

  Tensors backward_row(const at::Tensor& dout, const AttentionState& s, const AttentionArgs& full_args) const {
    const AttentionArgs args = without_idle_masks(full_args, s.q.size(1), s.k.size(1));
    if (!by_window(args)) return compute_backward(dout, s, args);
    // Several blocks add to the gradients of a key, so in a wide type.
    const auto wide = [&](const at::Tensor& x) { return x.to(compute_type(s.q)); };
    Tensors gradients = backward_by_window(wide(dout), {wide(s.q), wide(s.k), wide(s.v), wide(s.out), s.lse, {}}, args,
                                           [this](const auto&... block) { return compute_backward(block...); });
    for (at::Tensor& gradient : gradients) gradient = gradient.to(s.q.scalar_type());
    return gradients;
  }

  AttentionState compute(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const {
    at::Tensor p = masked_scores(q, k, args);
    at::Tensor top = p.amax(-1, true);
    top.masked_fill_(top.eq(-kInfinity), 0);  // a query that sees no key: exp(-inf - 0) = 0 rather than NaN
    p.sub_(top).exp_();
    at::Tensor sum = p.sum(-1, true);
    at::Tensor lse = top.add_(sum.log()).squeeze(-1);
    p.div_(sum.masked_fill_(sum.eq(0), 1));
    if (const at::Tensor keep = kept(p, args); keep.defined()) p.mul_(keep);
    const at::Tensor out = at::bmm(p.view({-1, q.size(2) / k.size(2) * q.size(1), k.size(1)}), by_head(v));
    return {q, k, v, by_position(out, q), lse, {}};
  }

  Tensors compute_backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) const {
    const auto& [q, k, v, out, lse, extra] = state;
    const int64_t G = k.size(2), RS = q.size(2) / G * q.size(1), T = k.size(1);
    const at::Tensor dout_GBRSD = by_group(dout, G), q_GBRSD = by_group(q, G);
    const at::Tensor lse_BHS1 = lse.to(compute_type(q)).unsqueeze(-1);
    at::Tensor slope, p = masked_scores(q, k, args, &slope);
    p.sub_(lse_BHS1.masked_fill(lse_BHS1.eq(-kInfinity), 0)).exp_();

    const at::Tensor keep = kept(p, args);
    const at::Tensor used = keep.defined() ? p.mul(keep) : p;
    const at::Tensor dv = at::bmm(used.view({-1, RS, T}).transpose(1, 2), dout_GBRSD);

    at::Tensor ds = at::bmm(dout_GBRSD, by_head(v).transpose(1, 2)).view(p.sizes());  // dp so far
    if (keep.defined()) ds.mul_(keep);
    // sum_j p_j dp_j = dout . out: the softmax gradient's row sum, with dropout too, without another S * T pass.
    const at::Tensor delta = dout_GBRSD.mul(by_group(out, G)).sum(-1).view(lse_BHS1.sizes());
    ds.sub_(delta).mul_(p).mul_(args.scale);
    if (slope.defined()) ds.mul_(slope);
    const at::Tensor ds_GBRST = ds.view({-1, RS, T});
    return {by_position(at::bmm(ds_GBRST, by_head(k)), q), by_position(at::bmm(ds_GBRST.transpose(1, 2), q_GBRSD), k),
            by_position(dv, v)};
  }
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Attention, "standard", Standard)
