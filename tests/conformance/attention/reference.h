// Attention by plain float64 loops over the formula, inputs to compare with and how near results must be.
// Shapes: q is [B, S, H, D], k and v [B, T, G, D], lse [B, H, S].
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include <drivetrain/attention.h>

namespace drivetrain::test {

struct AttentionCase {
  const char* what;
  int64_t B, S, T, H, G, D;
  AttentionArgs args;  // scale is set by the suite
};

struct AttentionInputs {
  at::Tensor q, k, v, dout;
};
struct AttentionResult {
  at::Tensor out, lse, dq, dk, dv;
};

AttentionArgs attention_args(bool causal, int64_t window = 0, int64_t q_offset = 0, std::vector<int64_t> ends = {},
                             double softcap = 0);

// Normal numbers in float64, the same for the same seed.
at::Tensor normal_numbers(at::IntArrayRef sizes, uint64_t seed);
// q, k and v are slices of one fused tensor where they can be, as models have them: not contiguous.
AttentionInputs attention_inputs(const AttentionCase& c, at::ScalarType type = at::kDouble);

// The formula, element by element, in float64.
AttentionResult attention_reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const at::Tensor& dout, const AttentionArgs& args);
// Forward and backward of the plugin.
AttentionResult run_attention(const Attention& attention, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& dout, const AttentionArgs& args);

// How far results of this type may be from the formula, relative to what is above 1.
double attention_tolerance(at::ScalarType type);
void expect_close(const at::Tensor& found, const at::Tensor& wanted, double tolerance, const char* what);
void expect_close(const AttentionResult& found, const AttentionResult& wanted, double tolerance);

}  // namespace drivetrain::test
