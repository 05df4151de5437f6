#include "device_halves.h"

#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include <drivetrain/error.h>
#include <drivetrain/toolkit/text.h>

namespace drivetrain::flash {
namespace {

// What AttentionState::extra holds. Both kernels return their random numbers' state, unused without dropout; cuDNN's
// statistics may come with a dimension of one behind, and go back in the shape they came in.
enum Extra : size_t { seed, offset, statistics };

AttentionState flash_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionArgs& args) {
  const auto r = at::_scaled_dot_product_flash_attention(heads_first(q), heads_first(k), heads_first(v), 0.0,
                                                         args.causal, false, args.scale);
  return {q, k, v, std::get<0>(r).transpose(1, 2), std::get<1>(r), {std::get<6>(r), std::get<7>(r)}};
}

AttentionState cudnn_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionArgs& args) {
  const auto r =
      at::_scaled_dot_product_cudnn_attention(heads_first(q), heads_first(k), heads_first(v), std::nullopt,
                                              /*compute_log_sumexp=*/true, 0.0, args.causal, false, args.scale);
  const at::Tensor& lse = std::get<1>(r);
  return {q,
          k,
          v,
          std::get<0>(r).transpose(1, 2),
          lse.dim() == 4 ? lse.squeeze(3) : lse,
          {std::get<6>(r), std::get<7>(r), lse}};
}

// Milliseconds of forward and backward, the best of some; infinite with a reason if the kernel refuses.
double time_of(Backend backend, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
               const AttentionArgs& args, std::string& reason) {
  constexpr int kRounds = 4, kCalls = 5;
  double best = std::numeric_limits<double>::infinity();
  try {
    for (int round = 0; round < kRounds; ++round) {  // the first one finds plans and memory
      const auto start = std::chrono::steady_clock::now();
      for (int call = 0; call < kCalls; ++call) {
        const AttentionState state = device_forward(backend, q, k, v, args);
        const at::Tensor dq = device_backward(state.out, state, args)[0];
        if (call == kCalls - 1)
          dq.select(0, 0).select(0, 0).select(0, 0).select(0, 0).item<double>();  // waits for all of them
      }
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
      if (round > 0) best = std::min(best, took.count() / kCalls);
    }
  } catch (const c10::Error& e) {
    reason = e.what_without_backtrace();
    return std::numeric_limits<double>::infinity();
  }
  return best;
}

std::string outcome(Backend backend, double milliseconds, const std::string& reason) {
  if (!reason.empty()) return concat(name_of(backend), " cannot (", first_line(reason), ")");
  return concat(name_of(backend), formatted(" %.3f ms", milliseconds));
}

}  // namespace

const char* name_of(Backend backend) { return backend == Backend::cudnn ? "cudnn" : "flash"; }

AttentionState device_forward(Backend backend, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionArgs& args) {
  return backend == Backend::cudnn ? cudnn_forward(q, k, v, args) : flash_forward(q, k, v, args);
}

Tensors device_backward(const at::Tensor& dout, const AttentionState& s, const AttentionArgs& args) {
  const at::Tensor none;  // no sequences of several lengths, no bias
  const at::Tensor d = heads_first(dout), q = heads_first(s.q), k = heads_first(s.k), v = heads_first(s.v),
                   out = heads_first(s.out);
  const int64_t S = q.size(2), T = k.size(2);
  const auto [dq, dk, dv] =
      s.extra.size() > statistics
          ? at::_scaled_dot_product_cudnn_attention_backward(d, q, k, v, out, s.lse.view(s.extra[statistics].sizes()),
                                                             s.extra[seed], s.extra[offset], none, none, none, S, T,
                                                             0.0, args.causal, args.scale)
          : at::_scaled_dot_product_flash_attention_backward(d, q, k, v, out, s.lse, none, none, S, T, 0.0, args.causal,
                                                             s.extra[seed], s.extra[offset], args.scale);
  return {dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)};
}

Measured measure(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionArgs& args) {
  std::string cudnn_reason, flash_reason;
  const double cudnn = time_of(Backend::cudnn, q, k, v, args, cudnn_reason),
               flash = time_of(Backend::flash, q, k, v, args, flash_reason);
  return {cudnn < flash ? Backend::cudnn : Backend::flash,
          outcome(Backend::cudnn, cudnn, cudnn_reason) + ", " + outcome(Backend::flash, flash, flash_reason)};
}

}  // namespace drivetrain::flash
