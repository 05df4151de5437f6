#include "shared/math_threads.h"

#include <ATen/Parallel.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/ones.h>

namespace drivetrain {

void make_math_ready() {
  // MKL's vector functions (exp, log, tanh and others of LibTorch's float operators) make themselves ready when the
  // first of them is called. Where two threads made that call together, one of them was seen to compute its whole part
  // with errors of 1e-4 instead of rounding's (MKL 2024.0, one run in a hundred on a loaded machine). One element is
  // computed by this thread alone, and every later call finds them ready, whichever function it is of.
  at::exp(at::ones({1}));
}

void set_math_threads(int64_t threads) {
  at::set_num_threads(static_cast<int>(threads));
  make_math_ready();
}

}  // namespace drivetrain
