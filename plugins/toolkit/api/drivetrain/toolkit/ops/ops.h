// The operations between a transformer's matrix products, each as a forward and a backward function without autograd,
// for hand-written units. Each runs the kernel of its device and dtype (kernels/), or LibTorch's operators if there is
// no kernel (float64).
//
// Gradients of parameters are written to their slots (Param::write_grad). Inputs are contiguous; results are new
// tensors unless the comment says otherwise. Thread: any; loops on LibTorch's pool. Stream: the current one. Results do
// not depend on the number of threads. Legend: N rows (leading dimensions), D hidden, F MLP width, V vocabulary, B
// batch, S sequence, H heads, G key/value heads, C head size.
#pragma once

#include <ATen/core/Tensor.h>

#include <drivetrain/export.h>
#include <drivetrain/param.h>
#include <drivetrain/random.h>
#include <drivetrain/step_context.h>

namespace drivetrain::ops {

// --- layer norm and RMS norm of x + delta: x_hat * (offset + weight) + bias
struct NormArgs {
  double epsilon = 1e-5;
  bool rms = false;
  double offset = 0;     // nothing without a weight
  bool leave_y = false;  // y is not computed here (operand.h)
};
struct Normed {
  at::Tensor y;           // [..., D]; undefined with leave_y
  at::Tensor sum;         // x + delta; x itself if there is no delta
  at::Tensor mean, rstd;  // float32 [N] (float64 for float64); mean undefined for rms
};
// x [..., D]; delta like x or undefined; weight and bias [D] or undefined. Heads of [B, S, H, C] are H rows each that
// share a weight [C].
Normed norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, const at::Tensor& bias,
            const NormArgs& args);
// Computes y again from the other members of `kept`.
at::Tensor norm_again(const Normed& kept, const at::Tensor& weight, const at::Tensor& bias, const NormArgs& args);
// dsum: gradient that reaches the sum along the residual stream, or undefined.
// Returns the gradient of x, which is also the gradient of delta. Does not read kept.y. weight, bias: null for none.
at::Tensor norm_backward(const at::Tensor& dy, const at::Tensor& dsum, const Normed& kept, Param* weight, Param* bias,
                         const NormArgs& args);
inline at::Tensor norm_backward(const at::Tensor& dy, const at::Tensor& dsum, const Normed& kept, Param& weight,
                                Param* bias, const NormArgs& args) {
  return norm_backward(dy, dsum, kept, &weight, bias, args);
}

// --- the MLP's activation: those of BlockSpec::activation, by the same names
enum class Activation { gelu_tanh, gelu, silu, relu, swiglu, geglu, geglu_tanh, reglu };
Activation activation_of(const std::string& name);  // Error(config) for another name
bool is_gated(Activation kind);                     // act(gate) * up
// x [..., F], or [..., 2 F] with the gate first if it is gated; bias as wide as x, or undefined.
// y = act(x + bias) [..., F].
at::Tensor activation(Activation kind, const at::Tensor& x, const at::Tensor& bias);
// Returns dx. Writes its sum over rows to the slot of `bias`, if there is a bias and it is trainable.
at::Tensor activation_backward(Activation kind, const at::Tensor& x, const at::Tensor& dy, Param* bias);
// The same without that sum.
at::Tensor activation_backward(Activation kind, const at::Tensor& x, const at::Tensor& dy, const at::Tensor& bias);

// --- rotary positions and the split of q, k, v
// Radians per token of each of n pairs (i, i + n) of the first 2 n elements of a head, n <= C/2. The others pass.
struct RotaryTable {
  // [S, n], or [B * S, n] where rows have positions of their own; float32 (float64 for float64); undefined: no
  // rotation.
  at::Tensor cos, sin;
};
// `scale` multiplies cos and sin.
RotaryTable rotary_table(const std::vector<double>& frequencies, int64_t first, int64_t length, const at::Tensor& like,
                         double scale = 1);
// Rotary tables for positions of the sequence. For one range the result is a view of a table of all positions. For
// several ranges the table is made once and kept, so that a recorded step finds it in the same memory. The blocks of a
// model share one object. Thread: main.
class RotaryPositions {
 public:
  explicit RotaryPositions(std::vector<double> frequencies, double scale = 1)
      : frequencies_(std::move(frequencies)), scale_(scale) {}
  RotaryTable table(const std::vector<RowRange>& positions, const at::Tensor& like);
  // For the columns of the current batch: by its position_ids_BS if it has them.
  RotaryTable table(const StepContext& ctx, const at::Tensor& like);
  const std::vector<double>& frequencies() const { return frequencies_; }
  double scale() const { return scale_; }

 private:
  struct Cut {
    std::vector<RowRange> positions;
    RotaryTable table;
  };
  void reach(int64_t end, const at::Tensor& like);

  const std::vector<double> frequencies_;
  const double scale_;
  RotaryTable longest_;    // all positions so far, in the last dtype and on the last device
  std::vector<Cut> cuts_;  // tables of several ranges
  at::Tensor ids_;         // the last batch's own positions, and their table
  RotaryTable of_ids_;
};
struct Heads {
  at::Tensor q, k, v;  // [B, S, H, C], [B, S, G, C] twice; dense, but for views on a GPU
};
// RMS norms of queries and keys behind their bias and before the rotation. Weights [C]: of each head alone; [H C] and
// [G C]: of all heads together. Null: no norm.
struct QkNorm {
  Param *q = nullptr, *k = nullptr;
  double epsilon = 1e-5, offset = 0;
};
// qkv [B, S, (H + 2 G) C]; bias [(H + 2 G) C] or undefined. On a GPU without bias, norm and table the three are views
// of qkv. Norms of each head alone, and the rotation, are one pass.
Heads split_heads(const at::Tensor& qkv, const at::Tensor& bias, const RotaryTable& table, int64_t heads,
                  int64_t groups, const QkNorm& norm = {});
// Returns the gradient of qkv, [B, S, (H + 2 G) C]. Writes its sum over rows to the slot of `bias`, if there is one.
at::Tensor split_heads_backward(const Heads& gradients, const RotaryTable& table, Param* bias);
// The same where split_heads normed. `qkv`, and the value of `bias`, as they were given to it: nothing else is kept.
at::Tensor split_heads_backward(const Heads& gradients, const at::Tensor& qkv, const RotaryTable& table, Param* bias,
                                const QkNorm& norm);
// The rotation alone: x [B, S, H, C] turned, or a gradient turned back. Without a table x itself.
at::Tensor rotate(const at::Tensor& x, const RotaryTable& table);
at::Tensor rotate_backward(const at::Tensor& dy, const RotaryTable& table);

// --- loss
// The number of rows per chunk in which an output layer computes logits of x [N, D] with weight [V, D]: large enough
// for fast matrix products and few additions to the weight's gradient, small enough for little memory.
int64_t loss_rows_at_once(const at::Tensor& x, const at::Tensor& weight);
int64_t loss_rows_at_once(int64_t rows, int64_t row_bytes, bool on_cpu);  // row_bytes: of one row of logits
// At most `most` rows per chunk, in as many chunks, of which none is much smaller than the others.
int64_t even_rows(int64_t rows, int64_t most);
// `columns` or more, so that rows of 16-bit numbers that far apart all begin where the products of a GPU want them.
int64_t aligned_columns(int64_t columns);
// What the output layer makes of z = x W^T: logit = scale z, then, if `softcap` is not 0, softcap tanh(logit /
// softcap).
struct LogitArgs {
  double scale = 1, softcap = 0;
};
// The logits of z; z itself where nothing is to be done. Differentiable by autograd.
at::Tensor logits_of(const at::Tensor& z, const LogitArgs& args);
// logits [N, V], whose rows may lie apart; labels int64 [N]; a row with a negative label does not count. Returns the
// float64 scalar sum over the rows that count of log sum exp(logits) - logit[label], not scaled. With `gradient`,
// logits are overwritten by their gradient, (softmax - onehot) * scale, zero in rows that do not count; without, they
// do not change. With `args` the matrix has z, and gets the gradient of z.
at::Tensor cross_entropy_(at::Tensor& logits, const at::Tensor& labels, bool gradient, double scale = 1,
                          const LogitArgs& args = {});

// --- embedding and biases
// Adds the rows of dy [..., D] to the rows `ids` of the slot of `weight` [V, D]; equal ids in the order of positions.
void accumulate_embedding_grad(Param& weight, const at::Tensor& ids, const at::Tensor& dy);
// Writes or adds the sum of dy [..., O] over all rows to the slot of `bias`, in a fixed order.
void accumulate_bias_grad(Param& bias, const at::Tensor& dy);

}  // namespace drivetrain::ops
