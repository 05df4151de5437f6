// Attention over rows with several documents, one document after the other: no work is spent between documents. Pure
// functions; thread and stream of the attention that calls them.
#pragma once

#include <functional>

#include <drivetrain/attention.h>

namespace drivetrain {

// args.varlen has boundaries, and as many keys as queries. `one` computes a document alone: q [1, L, H, D], k and v
// [1, L, G, D], with arguments without boundaries. It is called in the order of the documents.
AttentionState forward_by_document(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionArgs& args,
    const std::function<AttentionState(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                       const AttentionArgs& args)>& one);

// The same for `state` of forward_by_document and dout [B, S, H, D]; `one` returns dq, dk, dv of a document.
Tensors backward_by_document(
    const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args,
    const std::function<Tensors(const at::Tensor& dout, const AttentionState& state, const AttentionArgs& args)>& one);

// Lists of tensors in one list, one behind the other: each as its length in the shape of an empty tensor [n, 0], then
// its tensors.
void append_list(Tensors& list, const Tensors& more);
// The list that begins at index `at`, which then is the next one's.
Tensors take_list(const Tensors& list, size_t& at);

}  // namespace drivetrain
