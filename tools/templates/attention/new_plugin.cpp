// Attention by its formula, a block of queries at a time: memory grows with block * T and not with S * T.
//
// Source: Vaswani et al. 2017, eq. 1; Dao et al. 2022, appendix B.2. Backward computes the scores again from q, k and
// lse, so that results over parts of the keys can be merged. Shapes are those of attention.h.
#include <drivetrain/attention.h>
#include <drivetrain/services.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

namespace {

using namespace drivetrain;

class NewPlugin : public Attention {
 public:
  struct Options {
    int64_t block = 128;
  };
  static OptionTable options() {
    return table<Options>().field("block", &Options::block, "queries that are computed at once").at_least(1);
  }
  NewPlugin(const Options& options, const Services&) : block_(options.block) {}

  AttentionAbilities abilities() const override {  // what is not declared is refused by `check`
    AttentionAbilities can;
    can.dtypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
    can.gqa = can.window = can.q_offset = can.returns_lse = can.partial_keys = can.partial_heads = true;
    can.remedy = "use attention/standard";
    return can;
  }

  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const override {
    check("attention/new_plugin", q, k, v, args);
    const at::Tensor q_BHSD = by_head(q, 1), k_BHTD = by_head(k, q.size(2)), v_BHTD = by_head(v, q.size(2));
    Tensors out, lse;
    for (int64_t first = 0; first < q.size(1); first += block_) {
      const at::Tensor scores = masked_scores(rows(q_BHSD, first), k_BHTD, args, first);
      lse.push_back(scores.logsumexp({3}));
      out.push_back(probabilities(scores, lse.back()).matmul(v_BHTD));
    }
    return {q, k, v, by_position(at::cat(out, 2), q), at::cat(lse, 2), {}};
  }

  Tensors backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) const override {
    const auto& [q, k, v, out, lse, extra] = state;
    const at::Tensor q_BHSD = by_head(q, 1), k_BHTD = by_head(k, q.size(2)), v_BHTD = by_head(v, q.size(2));
    const at::Tensor dout_BHSD = by_head(dout, 1), lse_BHS = lse.to(q_BHSD.scalar_type());
    const at::Tensor delta = (dout_BHSD * by_head(out, 1)).sum(-1, true);  // the softmax gradient's row sum
    Tensors dq, dkv = {at::zeros_like(k_BHTD), at::zeros_like(v_BHTD)};
    for (int64_t first = 0; first < q.size(1); first += block_) {
      const at::Tensor q_block = rows(q_BHSD, first), dout_block = rows(dout_BHSD, first);
      const at::Tensor p = probabilities(masked_scores(q_block, k_BHTD, args, first), rows(lse_BHS, first));
      const at::Tensor ds = (dout_block.matmul(v_BHTD.transpose(2, 3)) - rows(delta, first)) * p * args.scale;
      dq.push_back(ds.matmul(k_BHTD));
      dkv[0].add_(ds.transpose(2, 3).matmul(q_block)), dkv[1].add_(p.transpose(2, 3).matmul(dout_block));
    }
    return {by_position(at::cat(dq, 2), q), by_position(dkv[0], k), by_position(dkv[1], v)};
  }

 private:
  // [B, N, X, D] -> [B, heads or X, N, D], 16 bits as float32; a key head stands once for each of its query heads.
  static at::Tensor by_head(const at::Tensor& x, int64_t heads) {
    const at::Tensor wide = x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).transpose(1, 2);
    return heads <= x.size(2) ? wide : wide.repeat_interleave(heads / x.size(2), 1);
  }
  // Back, to shape and dtype of `like`: what belongs to one key head is added up.
  static at::Tensor by_position(const at::Tensor& x, const at::Tensor& like) {
    const int64_t heads = like.size(2), each = x.size(1) / heads;
    const at::Tensor sum = each == 1 ? x : x.view({x.size(0), heads, each, x.size(2), x.size(3)}).sum(2);
    return sum.transpose(1, 2).contiguous().to(like.scalar_type());
  }
  at::Tensor rows(const at::Tensor& x, int64_t first) const {
    return x.narrow(2, first, std::min(block_, x.size(2) - first));
  }
  static at::Tensor masked_scores(const at::Tensor& q, const at::Tensor& k, const AttentionArgs& args, int64_t first) {
    const at::Tensor scores = q.matmul(k.transpose(2, 3)) * args.scale;
    const auto whole = at::TensorOptions(at::kLong).device(q.device());
    const at::Tensor query = at::arange(q.size(2), whole) + (args.q_offset + first);
    const at::Tensor distance = query.unsqueeze(1) - at::arange(k.size(2), whole);
    if (args.causal) scores.masked_fill_(distance < 0, -INFINITY);
    if (args.window > 0) scores.masked_fill_(distance.abs() >= args.window, -INFINITY);
    return scores;
  }
  // A query that sees no key has lse -infinity and the probabilities 0.
  static at::Tensor probabilities(const at::Tensor& scores, const at::Tensor& lse) {
    return (scores - lse.masked_fill(lse == -INFINITY, 0).unsqueeze(-1)).exp_();
  }

  const int64_t block_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Attention, "new_plugin", NewPlugin)
