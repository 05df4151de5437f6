#include <drivetrain/testkit/attention/reference.h>

#include <gtest/gtest.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <random>

namespace drivetrain::test {

AttentionArgs attention_args(bool causal, int64_t window, int64_t q_offset, std::vector<int64_t> ends, double softcap) {
  AttentionArgs args;
  args.causal = causal, args.window = window, args.q_offset = q_offset, args.varlen.cu_seqlens = std::move(ends);
  args.softcap = softcap;
  return args;
}

at::Tensor normal_numbers(at::IntArrayRef sizes, uint64_t seed) {
  at::Tensor x = at::empty(sizes, at::kDouble);
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal;
  double* data = x.mutable_data_ptr<double>();
  for (int64_t i = 0; i < x.numel(); ++i) data[i] = normal(generator);
  return x;
}

// `row`: where the row's positions begin, all rows counted through.
static bool attention_sees(const AttentionArgs& args, int64_t row, int64_t i, int64_t j) {
  const int64_t distance = i + args.q_offset - j;
  if (args.causal && distance < 0) return false;
  if (args.window > 0 && std::abs(distance) >= args.window) return false;
  for (const int64_t end : args.varlen.cu_seqlens)
    if ((row + i < end) != (row + j < end)) return false;
  return true;
}

// The formula, element by element. Gradients: ds_ij = p_ij (dout_i . v_j - dout_i . out_i), and with a softcap times
// the slope of c tanh(s / c), which is 1 - (its value / c)^2.
AttentionResult attention_reference(const at::Tensor& q_, const at::Tensor& k_, const at::Tensor& v_,
                                    const at::Tensor& dout_, const AttentionArgs& args) {
  const at::Tensor q = q_.to(at::kDouble).contiguous(), k = k_.to(at::kDouble).contiguous(),
                   v = v_.to(at::kDouble).contiguous(), dout = dout_.to(at::kDouble).contiguous();
  const int64_t B = q.size(0), S = q.size(1), H = q.size(2), D = q.size(3), T = k.size(1), G = k.size(2);
  AttentionResult r{at::zeros_like(q), at::zeros({B, H, S}, at::kDouble), at::zeros_like(q), at::zeros_like(k),
                    at::zeros_like(v)};
  struct Rows {
    double* data;
    int64_t positions, heads;
    explicit Rows(const at::Tensor& x) : data(x.mutable_data_ptr<double>()), positions(x.size(1)), heads(x.size(2)) {}
  };
  const Rows q_rows(q), k_rows(k), v_rows(v), dout_rows(dout), out_rows(r.out), dq_rows(r.dq), dk_rows(r.dk),
      dv_rows(r.dv);
  const auto row = [D](const Rows& x, int64_t b, int64_t s, int64_t h) {
    return x.data + ((b * x.positions + s) * x.heads + h) * D;
  };
  const auto dot = [&](const double* x, const double* y) {
    double sum = 0;
    for (int64_t d = 0; d < D; ++d) sum += x[d] * y[d];
    return sum;
  };
  const auto add = [&](double* to, double factor, const double* x) {
    for (int64_t d = 0; d < D; ++d) to[d] += factor * x[d];
  };
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t i = 0; i < S; ++i) {
        const int64_t g = h / (H / G);
        std::vector<double> p(T, 0), slope(T, 1);
        double sum = 0;
        for (int64_t j = 0; j < T; ++j) {
          if (!attention_sees(args, b * S, i, j)) continue;
          double score = args.scale * dot(row(q_rows, b, i, h), row(k_rows, b, j, g));
          if (args.softcap > 0) {
            score = args.softcap * std::tanh(score / args.softcap);
            slope[j] = 1 - score * score / (args.softcap * args.softcap);
          }
          sum += p[j] = std::exp(score);
        }
        r.lse.mutable_data_ptr<double>()[(b * H + h) * S + i] = std::log(sum);
        if (sum == 0) continue;
        for (int64_t j = 0; j < T; ++j) add(row(out_rows, b, i, h), p[j] /= sum, row(v_rows, b, j, g));
        const double* di = row(dout_rows, b, i, h);
        const double delta = dot(di, row(out_rows, b, i, h));
        for (int64_t j = 0; j < T; ++j) {
          if (p[j] == 0) continue;
          const double ds = args.scale * slope[j] * p[j] * (dot(di, row(v_rows, b, j, g)) - delta);
          add(row(dv_rows, b, j, g), p[j], di);
          add(row(dq_rows, b, i, h), ds, row(k_rows, b, j, g));
          add(row(dk_rows, b, j, g), ds, row(q_rows, b, i, h));
        }
      }
  return r;
}

// Values are of order 1 and sums have a few hundred terms: some units in the last place, more for gradients.
double attention_tolerance(at::ScalarType type) {
  if (type == at::kDouble) return 1e-12;
  if (type == at::kFloat) return 2e-5;
  return type == at::kHalf ? 1e-2 : 8e-2;
}

void expect_close(const at::Tensor& found, const at::Tensor& wanted, double tolerance, const char* what) {
  ASSERT_EQ(found.sizes(), wanted.sizes()) << what;
  const at::Tensor a = found.to(at::kDouble).contiguous(), b = wanted.to(at::kDouble).contiguous();
  const double *x = a.const_data_ptr<double>(), *y = b.const_data_ptr<double>();
  for (int64_t i = 0; i < a.numel(); ++i) {
    if (x[i] == y[i]) continue;  // infinities too
    ASSERT_NEAR(x[i], y[i], tolerance * std::max(1.0, std::abs(y[i]))) << what << " element " << i;
  }
}

void expect_close(const AttentionResult& found, const AttentionResult& wanted, double tolerance) {
  expect_close(found.out, wanted.out, tolerance, "out");
  expect_close(found.lse, wanted.lse, tolerance, "lse");
  expect_close(found.dq, wanted.dq, tolerance, "dq");
  expect_close(found.dk, wanted.dk, tolerance, "dk");
  expect_close(found.dv, wanted.dv, tolerance, "dv");
}

AttentionResult run_attention(const Attention& attention, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& dout, const AttentionArgs& args) {
  const AttentionState state = attention.forward(q, k, v, args);
  const Tensors grads = attention.backward(dout, state, args);
  return {state.out, state.lse, grads[0], grads[1], grads[2]};
}

AttentionInputs attention_inputs(const AttentionCase& c, at::ScalarType type) {
  // q, k and v are slices of one fused tensor where they can be, as models have them: not contiguous.
  const at::Tensor fused = normal_numbers({c.B, std::max(c.S, c.T), c.H + 2 * c.G, c.D}, 1).to(type);
  return {fused.narrow(1, 0, c.S).narrow(2, 0, c.H), fused.narrow(1, 0, c.T).narrow(2, c.H, c.G),
          fused.narrow(1, 0, c.T).narrow(2, c.H + c.G, c.G), normal_numbers({c.B, c.S, c.H, c.D}, 2).to(type)};
}

}  // namespace drivetrain::test
