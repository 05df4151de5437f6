// What the toolkit's operations and layers take beside their operands and results, for plans of memory
// (planned_memory.h). Each function says what the code of the same name does, and has to change with it. Sizes in
// elements, results in bytes. Thread: any.
#pragma once

#include <drivetrain/layers.h>
#include <drivetrain/planned_memory.h>

namespace drivetrain::layer_memory {

// Norms, activations and losses have kernels; without one they are LibTorch's operators, one after another.
inline bool has_kernels(const VisitShape& s) { return s.dtype == at::kFloat || (!s.on_cpu && s.dtype != at::kDouble); }

// Statistics of a norm that are kept, for so many tokens.
TensorSizes norm_statistics(const VisitShape& s, double tokens, bool rms);
// ops::norm_again, or ops::norm: beside what it returns.
TensorSizes norm_again(const VisitShape& s, double tokens, double columns);
TensorSizes norm_backward(const VisitShape& s, double tokens, double columns);
// ops::split_heads_backward of normed queries and keys; `columns` of q, k and v on this rank.
TensorSizes qk_norm_backward(const VisitShape& s, const BlockSpec& block, double columns);
// ops::activation and its backward; `in` columns, and whether a bias is added there.
TensorSizes activation(const VisitShape& s, double tokens, double in, bool bias);
TensorSizes activation_backward(const VisitShape& s, double tokens, double in, bool bias);
// gelu_product and its backward.
TensorSizes gelu_product();
// accumulate_weight_grad of dy [tokens, out] and x [tokens, in].
TensorSizes weight_gradient(const VisitShape& s, double tokens, double out, double in);
// chunked_loss, from its dy to dx, of `tokens` rows; `columns` of the vocabulary on this rank.
TensorSizes chunked_loss(const VisitShape& s, double tokens, double hidden, double columns);
// ops::accumulate_embedding_grad of a table on this rank.
TensorSizes embedding_gradient(const VisitShape& s, double tokens, double rows, double columns);

}  // namespace drivetrain::layer_memory
