// A rank has a piece of every sequence; in attention it gathers the keys and values of all ranks.
//
// Everything but attention works position by position and needs to know nothing. A query sees the keys of earlier
// pieces without a mask, and those of its own piece with one: two calls of the attention inside, merged by their lse.
#include <drivetrain/toolkit/layers/attention_pieces.h>
#include <drivetrain/toolkit/layers/by_document.h>
#include <drivetrain/toolkit/sequence_sharing.h>

#include <ATen/ops/zeros.h>

namespace {

using namespace drivetrain;

class GatheredAttention : public Attention {
 public:
  GatheredAttention(std::shared_ptr<Attention> inner, int64_t ranks, int64_t index)
      : inner_(std::move(inner)), ranks_(ranks), index_(index) {}
  void set_group(const GroupPtr& group) { group_ = group; }

  AttentionAbilities abilities() const override {
    AttentionAbilities can = inner_->abilities();
    can.window = can.q_offset = can.dropout = can.varlen = can.partial_keys = false;
    return can;
  }

  AttentionState forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionArgs& args) const override {
    check("context_parallel/new_plugin", q, k, v, args);
    const at::Tensor all_k = gather_pieces(*group_, k), all_v = gather_pieces(*group_, v);
    AttentionState state{q, k, v, {}, {}, {}};
    for (const Part& part : parts(q.size(1), args.causal)) {
      const AttentionState one = inner_->forward(q, keys(all_k, part), keys(all_v, part), of(part, args));
      append_list(state.extra, one.extra);
      merge_attention(state, one);
    }
    state.out = state.out.to(q.scalar_type());
    return state;
  }

  Tensors backward(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args) const override {
    const at::Tensor all_k = gather_pieces(*group_, state.k), all_v = gather_pieces(*group_, state.v);
    const auto zeros = [&](const at::Tensor& x) { return at::zeros(x.sizes(), state.lse.options()); };
    const at::Tensor dq = zeros(state.q), dk = zeros(all_k), dv = zeros(all_v);
    size_t extra = 0;
    for (const Part& part : parts(state.q.size(1), args.causal)) {
      AttentionState one = state;  // with the merged out and lse
      one.k = keys(all_k, part), one.v = keys(all_v, part), one.extra = take_list(state.extra, extra);
      const Tensors d = inner_->backward(dout, one, of(part, args));
      dq.add_(d[0]), keys(dk, part).add_(d[1]), keys(dv, part).add_(d[2]);
    }
    const at::ScalarType type = state.q.scalar_type();
    return {dq.to(type), sum_pieces(*group_, dk).to(type), sum_pieces(*group_, dv).to(type)};
  }

 private:
  struct Part {
    int64_t first, count;  // positions among all keys
    bool causal;
  };
  std::vector<Part> parts(int64_t S, bool causal) const {
    if (!causal) return {{0, ranks_ * S, false}};
    if (index_ == 0) return {{0, S, true}};
    return {{index_ * S, S, true}, {0, index_ * S, false}};
  }
  static at::Tensor keys(const at::Tensor& x, const Part& part) { return x.narrow(1, part.first, part.count); }
  static AttentionArgs of(const Part& part, AttentionArgs args) { return args.causal = part.causal, args; }

  const std::shared_ptr<Attention> inner_;
  const int64_t ranks_, index_;
  GroupPtr group_;
};

class NewPlugin : public SequenceSharing<GatheredAttention> {
 public:
  static OptionTable options() { return size_table("ranks that share a sequence"); }
  NewPlugin(const Options& options, const Services& services) : SequenceSharing("new_plugin", options, services) {}

  void plan(PlanContext& ctx) override {
    if (!claim(ctx, PlanContext::kContextPlace)) return;
    ctx.need(PlanContext::kWholePositions, "a piece is one range of the sequence");
    for (const char* ability : {"attention.returns_lse", "attention.non_causal", "attention.partial_keys"})
      ctx.need(ability, "results over two parts of the keys are merged");
    if ((ctx.run().training && ctx.model().attention_dropout > 0) || ctx.run().documents.value_or(false))
      ctx.refuse("attention_dropout and rows of several documents are not supported; use context_parallel/ulysses");
    plan_equal_pieces(ctx);
  }

 protected:
  std::shared_ptr<GatheredAttention> make_attention(std::shared_ptr<Attention> inner, int64_t index) const override {
    return std::make_shared<GatheredAttention>(std::move(inner), size_, index);
  }
  Builder::SequenceCut make_cut(int64_t index) const override {
    return equal_pieces("context_parallel/new_plugin", index);
  }
};

}  // namespace

DRIVETRAIN_PLUGIN(drivetrain::ContextParallel, "new_plugin", NewPlugin)
