#include "unit_memory.h"

#include <drivetrain/toolkit/layers/layer_memory.h>
#include <drivetrain/toolkit/units/memory_trace.h>

namespace drivetrain::gpt {
namespace {

namespace lm = layer_memory;

double number(int64_t count) { return static_cast<double>(count); }

// Of one [B, S, D] between layers.
double residual_bytes(const Shape& shape, const VisitShape& visit) {
  return visit.rank_tokens * number(shape.hidden) * visit.element();
}

// Of a tensor inside of layers, `columns` of which the ranks share.
double inside_bytes(int64_t columns, const VisitShape& visit) {
  return visit.tokens * number(columns) / number(visit.tensor_ranks) * visit.element();
}

// Of norms of queries and keys: what they keep for backward, and what that takes.
struct NormedHeads {
  TensorSizes kept, backward;
  double part = 0;  // queries and keys
};

NormedHeads normed_heads(const Shape& shape, const VisitShape& visit) {
  NormedHeads normed;
  if (!shape.qk_norm) return normed;
  const bool each = *shape.qk_norm == NormOver::head;
  normed.part = inside_bytes((shape.heads + shape.groups) * shape.head_dim, visit);
  normed.kept.add(normed.part);
  for (const int64_t heads : {shape.heads, shape.groups}) {
    const double rows = visit.tokens * (each ? number(heads) / number(visit.tensor_ranks) : 1),
                 columns = each ? number(shape.head_dim) : number(heads * shape.head_dim) / number(visit.tensor_ranks);
    normed.kept.add(lm::norm_statistics(visit, rows, true));
    if (heads == shape.heads) normed.backward.add(lm::norm_backward(visit, rows, columns));
  }
  return normed;
}

// Of the MLP that every token passes beside its experts, and its gate.
void keep_shared(const Shape& shape, const VisitShape& visit, TensorSizes& kept) {
  const ExpertShape& m = shape.mixture;
  if (m.shared_ffn == 0) return;
  kept.add(inside_bytes(shape.fc_width(m.shared_ffn), visit)).add(inside_bytes(m.shared_ffn, visit));
  if (m.shared_gate) kept.add(residual_bytes(shape, visit));
}

// Of a mixture with `rows` rows of all experts: what stands in front of their activation; rows or tokens that they
// keep; scores and places of choices.
TensorSizes mixture_kept(const Shape& shape, const VisitShape& visit, const BlockKeeps& keeps) {
  const ExpertShape& m = shape.mixture;
  const double rows = *keeps.expert_rows;
  TensorSizes kept;
  kept.add(rows * number(shape.fc_width(m.ffn)) * visit.element());
  if (keeps.kept_rows > 0) kept.add(keeps.kept_rows / 2 * number(shape.hidden) * visit.element(), 2);
  kept.add(visit.rank_tokens * number(m.experts) * 4, m.z_weight > 0 ? 2 : 1);
  kept.add(visit.rank_tokens * number(m.chosen) * 8, 5);
  keep_shared(shape, visit, kept);
  return kept;
}

// From the gradient of the mixture's output to that of its input, which is taken.
void mixture_backward(const Shape& shape, const VisitShape& visit, const BlockKeeps& keeps, MemoryTrace& trace) {
  const ExpertShape& m = shape.mixture;
  const double rows = *keeps.expert_rows;
  const double e = visit.element(), residual = residual_bytes(shape, visit), sums = residual / e * 4;
  const double of_rows = rows * number(shape.hidden) * e;
  if (m.shared_ffn > 0) {
    const double first = inside_bytes(shape.fc_width(m.shared_ffn), visit), act = inside_bytes(m.shared_ffn, visit);
    trace.take(act).take(first).free(act).take(residual).free(first);
    TensorSizes kept;  // not any more when the experts' turn comes
    keep_shared(shape, visit, kept);
    trace.free(kept);
  }
  const double act = rows * number(m.ffn) * e, first = rows * number(shape.fc_width(m.ffn)) * e;
  if (keeps.kept_rows >= 2 * rows) {      // as they were read and as they were returned
    trace.moment(sums, 3).take(of_rows);  // of the rows that experts returned
    trace.moment(act).take(act).take(first).free(act);
    trace.take(of_rows).free(first).free(of_rows);  // of those that they read
  } else {
    trace.take(act, 2).free(act).take(first).free(act).free(first);
    trace.take(of_rows).free(first);
  }
  trace.take(residual).moment(sums, 2).free(of_rows);
  trace.moment(visit.rank_tokens * number(m.experts) * 4, 3);
  if (m.shared_ffn > 0) trace.free(residual);  // added to that of the experts
}

}  // namespace

AttentionShape attention_shape(const Shape& shape, const VisitShape& visit, int64_t window) {
  const auto of_rank = [&](int64_t heads) { return number(heads) / number(visit.tensor_ranks); };
  AttentionShape a{visit.rows,           visit.positions(),     visit.positions(),
                   of_rank(shape.heads), of_rank(shape.groups), number(shape.head_dim)};
  a.dtype = visit.dtype, a.dropout = shape.attention_dropout > 0, a.on_cpu = visit.on_cpu;
  a.window = number(window), a.softcap = shape.attention_softcap > 0;
  return a;
}

VisitMemory block_memory(const Shape& shape, const VisitShape& visit, const BlockKeeps& keeps,
                         const AttentionMemory& attention) {
  const double residual = residual_bytes(shape, visit),
               gathered = visit.tokens * number(shape.hidden) * visit.element();
  const double queries = inside_bytes(shape.heads * shape.head_dim, visit),
               heads = inside_bytes(shape.qkv_width(), visit), first = inside_bytes(shape.fc_width(), visit),
               act = inside_bytes(shape.ffn, visit), hidden = number(shape.hidden);
  const auto share = [&](int64_t columns) { return number(columns) / number(visit.tensor_ranks); };
  const TensorSizes statistics = lm::norm_statistics(visit, visit.rank_tokens, shape.rms),
                    norm_backward = lm::norm_backward(visit, visit.rank_tokens, hidden);
  const bool before = shape.norms != NormPlacement::after, after = shape.norms != NormPlacement::before;
  const bool keeps_norms = keeps.norm == Keep::all && before, recomputes_norms = keeps.norm != Keep::all && before;
  const NormedHeads normed = normed_heads(shape, visit);
  // What a layer keeps in place of a norm's output that this block keeps too.
  const double more1 = keeps_norms && keeps.qkv_keeps_input ? gathered : 0,
               more2 = keeps_norms && keeps.fc_keeps_input ? gathered : 0;
  const double norm = keeps_norms ? residual : 0;
  const bool mixture = keeps.expert_rows.has_value();  // which keeps what it reads

  VisitMemory memory;
  memory.inputs.add(residual);
  memory.kept.add(residual, shape.parallel ? 1 : 2).add(norm, 2).add(more1).add(more2);
  if (keeps_norms) memory.kept.add(statistics, 2);
  if (mixture && recomputes_norms) memory.kept.add(residual).add(statistics);
  if (mixture) memory.kept.add(mixture_kept(shape, visit, keeps));
  if (after) memory.kept.add(residual, 2).add(statistics, 2);
  if (keeps.core != Keep::nothing) memory.kept.add(normed.kept);
  if (keeps.core == Keep::all) memory.kept.add(attention.kept);
  if (keeps.core == Keep::input) memory.kept.add(heads);
  if (keeps.act != Keep::nothing && !mixture) memory.kept.add(first);
  if (keeps.act == Keep::all && !mixture) memory.kept.add(act);

  MemoryTrace trace;
  trace.take(residual, 2);  // dy, and the output, which was kept for the unit behind
  // mlp_branch
  if (after) trace.moment(norm_backward).take(residual);
  if (mixture) {
    mixture_backward(shape, visit, keeps, trace);
  } else {
    if (keeps.act == Keep::nothing) trace.take(residual).take(first).free(residual);
    if (keeps.act != Keep::all) trace.take(act);
    trace.take(act).moment(lm::weight_gradient(visit, visit.tokens, hidden, share(shape.ffn))).free(act);
    trace.take(first).moment(lm::activation_backward(visit, visit.tokens, share(shape.fc_width()), false));
    trace.free(act).free(first);
    if (recomputes_norms) trace.moment(lm::norm_again(visit, visit.rank_tokens, hidden)).take(residual);
    trace.take(residual).moment(lm::weight_gradient(visit, visit.tokens, share(shape.fc_width()), hidden));
    trace.free(first);
  }
  if (before) trace.free(residual).free(more2).take(residual).moment(norm_backward).free(residual, 2);
  if (!before) trace.free(residual);
  if (after) trace.free(residual);
  trace.moment(residual);  // both gradients of the sum after attention
  // attention_branch
  if (after) trace.moment(norm_backward).take(residual);
  trace.take(residual);
  if (keeps.core == Keep::nothing) trace.take(residual).take(heads).free(residual);
  if (keeps.core != Keep::all) trace.moment(attention.forward).take(attention.kept).free(heads);
  trace.take(queries).moment(lm::weight_gradient(visit, visit.tokens, hidden, share(shape.heads * shape.head_dim)));
  trace.moment(attention.backward).free(attention.kept).take(heads).free(queries);
  trace.take(normed.part).moment(normed.backward).free(normed.part);
  trace.take(heads).free(heads);  // split
  if (recomputes_norms) trace.moment(lm::norm_again(visit, visit.rank_tokens, hidden)).take(residual);
  trace.take(residual).moment(lm::weight_gradient(visit, visit.tokens, share(shape.qkv_width()), hidden));
  trace.free(heads);
  if (before) trace.free(residual).free(more1).take(residual).moment(norm_backward).free(residual);
  if (!before) trace.free(residual);
  trace.moment(residual);
  memory.working = trace.most();
  return memory;
}

VisitMemory embedding_memory(const Shape& shape, const VisitShape& visit) {
  const auto table = [&](double rows, double tokens) {
    return lm::embedding_gradient(visit, tokens, rows, number(shape.hidden));
  };
  MemoryTrace trace;
  trace.take(residual_bytes(shape, visit));  // dy
  trace.moment(table(number(shape.vocab) / number(visit.tensor_ranks), visit.tokens));
  if (!shape.rotary) trace.moment(table(number(shape.positions), visit.rank_tokens));
  VisitMemory memory;
  memory.working = trace.most();
  return memory;
}

// The norm's sum is the unit's input, or the sum of both.
VisitMemory head_memory(const Shape& shape, const VisitShape& visit) {
  const double residual = residual_bytes(shape, visit);
  VisitMemory memory;
  memory.inputs.add(residual);
  memory.kept.add(residual, 2).add(lm::norm_statistics(visit, visit.rank_tokens, shape.rms));
  MemoryTrace trace;
  trace.moment(
      lm::chunked_loss(visit, visit.tokens, number(shape.hidden), number(shape.vocab) / number(visit.tensor_ranks)));
  trace.take(residual).free(residual);
  trace.take(residual, 2).moment(lm::norm_backward(visit, visit.rank_tokens, number(shape.hidden)));
  memory.working = trace.most();
  return memory;
}

}  // namespace drivetrain::gpt
