// Attention by its formula in float64, with a mistake that can be asked for. Legend of attention.h, and R = H / G.
#include <drivetrain/attention.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include <drivetrain/services.h>

namespace {

using namespace drivetrain;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Mistaken : public Attention {
 public:
  struct Options {
    std::string mistake = "none";
  };
  static OptionTable options() {
    return table<Options>()
        .field("mistake", &Options::mistake, "what is wrong")
        .one_of({"none",
                 "another_scale",
                 "sees_the_next_token",
                 "no_gradient_of_k",
                 "ignores_the_window",
                 "window_of_one_more",
                 "no_softcap",
                 "softcap_behind_the_mask",
                 "no_gradient_of_the_softcap",
                 "ignores_the_offset",
                 "one_long_sequence",
                 "all_rows_see_the_first",
                 "another_group_of_heads",
                 "refuses_what_it_declares",
                 "refuses_without_a_name",
                 "uses_its_own_lse",
                 "remembers_the_last_call",
                 "differs_from_call_to_call",
                 "keeps_its_inputs",
                 "takes_any_argument",
                 "drops_nothing",
                 "drops_without_a_factor",
                 "drops_others_in_backward",
                 "drops_by_row_of_the_batch",
                 "drops_the_same_in_every_step"});
  }
  Mistaken(const Options& options, const Services&) : mistake_(options.mistake) {}

  AttentionAbilities abilities() const override {
    AttentionAbilities can;
    can.dtypes = {at::kFloat, at::kDouble};
    can.gqa = can.varlen = can.q_offset = can.dropout = can.returns_lse = true;
    can.window = !is("refuses_without_a_name");
    can.partial_keys = can.partial_heads = can.softcap = true;
    can.remedy = "use attention/standard";
    return can;
  }

  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const override {
    if (is("refuses_without_a_name") && args.window > 0) throw fail(ErrorCode::config, "no window");
    if (is("refuses_what_it_declares") && args.q_offset != 0)
      throw fail(ErrorCode::config, "attention/mistaken: no offset; ", abilities().remedy);
    if (!is("takes_any_argument")) check("attention/mistaken", q, k, v, args);
    const at::Tensor s = scores(q, k, args), lse = s.logsumexp(-1);
    at::Tensor p = probabilities(s, lse);
    if (const at::Tensor keep = kept(p, args); keep.defined()) p = p * keep;
    at::Tensor out = at::matmul(p, heads(v, q.size(2)));
    if (is("differs_from_call_to_call")) out = out * (1 + 1e-6 * static_cast<double>(++calls_ % 2));
    if (is("keeps_its_inputs")) inputs_ = {q, k, v};
    const at::Tensor result = lse.to(q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
    last_lse_ = result;
    return {q, k, v, out.transpose(1, 2).contiguous().to(q.scalar_type()), result, {}};
  }

  Tensors backward(const at::Tensor& dout_, const AttentionState& state, const AttentionArgs& args) const override {
    const auto& [q, k, v, out, lse, extra] = state;
    const int64_t H = q.size(2), G = k.size(2);
    at::Tensor used = is("remembers_the_last_call") ? last_lse_ : lse;
    const at::Tensor s = scores(q, k, args), dout = heads(dout_, H);
    if (is("uses_its_own_lse")) used = s.logsumexp(-1);
    const at::Tensor p = probabilities(s, used);
    AttentionArgs backward_args = args;
    if (is("drops_others_in_backward")) ++backward_args.key.site;
    const at::Tensor keep = kept(p, backward_args), with = keep.defined() ? p * keep : p;
    at::Tensor dp = at::matmul(dout, heads(v, H).transpose(2, 3));
    if (keep.defined()) dp = dp * keep;
    const at::Tensor delta = (dout * heads(out, H)).sum(-1, true);
    at::Tensor ds = p * (dp - delta) * scale(args, q);
    if (args.softcap > 0 && !is("no_gradient_of_the_softcap")) ds = ds * slope(s, args);
    const at::Tensor dq = at::matmul(ds, heads(k, H)), dv = at::matmul(with.transpose(2, 3), dout);
    at::Tensor dk = at::matmul(ds.transpose(2, 3), heads(q, H));
    if (is("no_gradient_of_k")) dk = dk * 0;
    return {by_position(dq, H, q), by_position(dk, G, k), by_position(dv, G, v)};
  }

 private:
  bool is(const char* mistake) const { return mistake_ == mistake; }
  double scale(const AttentionArgs& args, const at::Tensor& q) const {
    return is("another_scale") ? 1.0 / static_cast<double>(q.size(3)) : args.scale;
  }
  // The key/value head of each query head.
  std::vector<int64_t> groups(int64_t H, int64_t G) const {
    std::vector<int64_t> of;
    for (int64_t h = 0; h < H; ++h) of.push_back(is("another_group_of_heads") ? h % G : h / (H / G));
    return of;
  }

  // [B, X, N, D] -> [B, H, X, D] in float64.
  at::Tensor heads(const at::Tensor& x, int64_t H) const {
    return x.to(at::kDouble).transpose(1, 2).index_select(1, at::tensor(groups(H, x.size(2))));
  }
  // Back, with the heads of a group added up.
  at::Tensor by_position(const at::Tensor& x, int64_t N, const at::Tensor& like) const {
    at::Tensor sum = at::zeros({x.size(0), N, x.size(2), x.size(3)}, x.options());
    sum.index_add_(1, at::tensor(groups(x.size(1), N)), x);
    return sum.transpose(1, 2).contiguous().to(like.scalar_type());
  }

  at::Tensor scores(const at::Tensor& q, const at::Tensor& k, const AttentionArgs& args) const {
    const int64_t S = q.size(1), T = k.size(1), H = q.size(2);
    at::Tensor keys = heads(k, H);
    if (is("all_rows_see_the_first")) keys = keys.narrow(0, 0, 1).expand_as(keys);
    at::Tensor s = at::matmul(heads(q, H), keys.transpose(2, 3)) * scale(args, q);
    const bool capped = args.softcap > 0 && !is("no_softcap");
    if (capped && !is("softcap_behind_the_mask")) s = (s / args.softcap).tanh() * args.softcap;
    const int64_t offset = is("ignores_the_offset") ? 0 : args.q_offset;
    const at::Tensor distance = at::arange(S).add(offset).unsqueeze(1) - at::arange(T).unsqueeze(0);
    if (args.causal) s.masked_fill_(distance.lt(is("sees_the_next_token") ? -1 : 0), -kInfinity);
    const int64_t window = args.window + (is("window_of_one_more") ? 1 : 0);
    if (args.window > 0 && !is("ignores_the_window")) s.masked_fill_(distance.abs().ge(window), -kInfinity);
    if (capped && is("softcap_behind_the_mask")) s = (s / args.softcap).tanh() * args.softcap;
    if (is("one_long_sequence")) return s;
    for (const int64_t end : args.varlen.cu_seqlens) {
      const at::Tensor before = at::arange(q.size(0) * S).lt(end).view({q.size(0), 1, S});
      s.masked_fill_(before.unsqueeze(3).ne(before.unsqueeze(2)), -kInfinity);
    }
    return s;
  }
  // Of c tanh(s / c), by its values; hidden ones have no gradient anyway.
  static at::Tensor slope(const at::Tensor& s, const AttentionArgs& args) {
    const at::Tensor share = s.masked_fill(s.eq(-kInfinity), 0) / args.softcap;
    return share * share * -1 + 1;
  }
  // 0 for a query that sees no key.
  static at::Tensor probabilities(const at::Tensor& s, const at::Tensor& lse) {
    const at::Tensor l = lse.to(at::kDouble).unsqueeze(-1);
    return (s - l.masked_fill(l.eq(-kInfinity), 0)).exp();
  }
  // 1 / (1 - p) where a probability is kept, 0 elsewhere; undefined without dropout.
  at::Tensor kept(const at::Tensor& p, const AttentionArgs& args) const {
    if (args.dropout == 0 || is("drops_nothing")) return {};
    RandomKey key = args.key;
    if (is("drops_by_row_of_the_batch")) key.first_sample = 0;
    if (is("drops_the_same_in_every_step")) key.step = 0;
    at::Tensor numbers = at::empty(p.sizes(), at::TensorOptions(at::kFloat));
    fill_uniform(numbers, key);
    return numbers.ge(args.dropout).to(at::kDouble) * (is("drops_without_a_factor") ? 1 : 1 / (1 - args.dropout));
  }

  const std::string mistake_;
  mutable int64_t calls_ = 0;
  mutable Tensors inputs_;
  mutable at::Tensor last_lse_;
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::Attention, "mistaken", Mistaken)
