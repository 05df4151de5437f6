// The operations between a transformer's matrix products as plain halves, without autograd:
// what hand-written units are made of.
// Each runs the kernel of its device and dtype (kernels/), LibTorch's operators where there is none (float64,
// 16 bits on the CPU).
//
// Gradients of parameters go to their slots (Param::write_grad).
// Inputs are dense; results are new tensors unless said.
// Thread: any; loops on LibTorch's pool. Stream: the current one. Results do not depend on the number of threads.
// Legend: N rows (leading dimensions), D hidden, F MLP width, V vocabulary, B batch, S sequence, H heads,
// G key/value heads, C head size.
#pragma once

#include <ATen/core/Tensor.h>

#include <drivetrain/export.h>
#include <drivetrain/param.h>
#include <drivetrain/random.h>

namespace drivetrain::ops {

// --- layer norm and RMS norm of x + delta
struct NormArgs {
  double epsilon = 1e-5;
  bool rms = false;
};
struct Normed {
  at::Tensor y;           // [..., D]
  at::Tensor sum;         // x + delta; x itself without delta
  at::Tensor mean, rstd;  // float32 [N] (float64 for float64); mean undefined for rms
};
// x [..., D]; delta like x or undefined; weight [D]; bias [D] or undefined.
Normed norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, const at::Tensor& bias,
            const NormArgs& args);
// y alone, from what norm() kept.
at::Tensor norm_again(const Normed& kept, const at::Tensor& weight, const at::Tensor& bias, const NormArgs& args);
// dsum: gradient that reaches the sum along the residual stream, or undefined.
// Returns the gradient of x, which is also that of delta. `kept.y` is not read.
at::Tensor norm_backward(const at::Tensor& dy, const at::Tensor& dsum, const Normed& kept, Param& weight, Param* bias,
                         const NormArgs& args);

// --- the MLP's activation
enum class Activation { gelu_tanh, gelu, swiglu };
Activation activation_of(const std::string& name);  // Error(config) for another name
// x [..., F], or [..., 2 F] with the gate first for swiglu; bias as wide as x, or undefined.
// y = act(x + bias) [..., F].
at::Tensor activation(Activation kind, const at::Tensor& x, const at::Tensor& bias);
// Returns dx; its sum over rows goes to the slot of `bias`, if there is one and it is trainable.
at::Tensor activation_backward(Activation kind, const at::Tensor& x, const at::Tensor& dy, Param* bias);

// --- rotary positions and the split of q, k, v
// Radians per token of each pair (i, i + C/2).
struct RotaryTable {
  at::Tensor cos, sin;  // [S, C/2] float32 (float64 for float64); undefined: no turn
};
RotaryTable rotary_table(const std::vector<double>& frequencies, int64_t first, int64_t length, const at::Tensor& like);
// Tables of positions of the whole sequence, in their order: a view of one table for one range;
// several ranges are put together once and kept, since a recorded step reads what it found.
// Shared by the blocks of a model. Thread: main.
class RotaryPositions {
 public:
  explicit RotaryPositions(std::vector<double> frequencies) : frequencies_(std::move(frequencies)) {}
  RotaryTable table(const std::vector<RowRange>& positions, const at::Tensor& like);
  const std::vector<double>& frequencies() const { return frequencies_; }

 private:
  struct Cut {
    std::vector<RowRange> positions;
    RotaryTable table;
  };
  void reach(int64_t end, const at::Tensor& like);

  const std::vector<double> frequencies_;
  RotaryTable longest_;    // of all positions so far, of the last dtype and device
  std::vector<Cut> cuts_;  // of several ranges
};
struct Heads {
  at::Tensor q, k, v;  // [B, S, H, C], [B, S, G, C] twice, each dense
};
// qkv [B, S, (H + 2 G) C]; bias [(H + 2 G) C] or undefined.
Heads split_heads(const at::Tensor& qkv, const at::Tensor& bias, const RotaryTable& table, int64_t heads,
                  int64_t groups);
// Gradients of the three into one [B, S, (H + 2 G) C]; its sum over rows goes to the slot of `bias`, if any.
at::Tensor split_heads_backward(const Heads& gradients, const RotaryTable& table, Param* bias);

// --- loss
// How many of x's rows [N, D] an output layer takes at once, so that logits are never whole:
// enough for products at full speed and few additions to the weight's gradient [V, D], little memory beside a model.
int64_t loss_rows_at_once(const at::Tensor& x, const at::Tensor& weight);
// logits [N, V] become their gradient, softmax - onehot, times `scale` (rows with a negative label:
// zero), or stay as they are without `gradient`.
// Returns the float64 scalar sum over rows that count of log sum exp(logits) - logit[label], not scaled.
at::Tensor cross_entropy_(at::Tensor& logits, const at::Tensor& labels, bool gradient, double scale = 1);

// --- embedding and biases
// Adds dy's rows to the slot's rows `ids`, equal ids in order of position.
void accumulate_embedding_grad(Param& weight, const at::Tensor& ids, const at::Tensor& dy);
// The slot of `bias` := or += sum of dy [..., O] over all rows, in fixed order.
void accumulate_bias_grad(Param& bias, const at::Tensor& dy);

}  // namespace drivetrain::ops
