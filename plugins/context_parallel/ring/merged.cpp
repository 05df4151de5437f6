#include "merged.h"

#include <ATen/ops/eq.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>

#include <limits>

namespace drivetrain::ring {
namespace {

at::ScalarType wide(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// exp(part - whole) [B, H, S] as factors of [B, S, H, D]; 0 where nothing is seen.
at::Tensor factors(const at::Tensor& part, const at::Tensor& whole) {
  at::Tensor f = part.sub(whole).exp_();
  f.masked_fill_(whole.eq(-std::numeric_limits<double>::infinity()), 0);
  return f.transpose(1, 2).contiguous().unsqueeze(-1);
}

}  // namespace

Merged::Merged(const at::Tensor& out, const at::Tensor& lse) : out_(out.to(wide(out))), lse_(lse.to(wide(out))) {}

Merged Merged::nothing(const at::Tensor& q) {
  const auto options = q.options().dtype(wide(q));
  return {at::zeros(q.sizes(), options),
          at::full({q.size(0), q.size(2), q.size(1)}, -std::numeric_limits<double>::infinity(), options)};
}

void Merged::add(const at::Tensor& out, const at::Tensor& lse, int64_t first_row, int64_t first) {
  at::Tensor out_here = out_.narrow(0, first_row, out.size(0)).narrow(1, first, out.size(1)),
             lse_here = lse_.narrow(0, first_row, out.size(0)).narrow(2, first, out.size(1));
  const at::Tensor lse_block = lse.to(lse_.scalar_type()), together = at::logaddexp(lse_here, lse_block);
  out_here.mul_(factors(lse_here, together));
  out_here.addcmul_(out.to(out_.scalar_type()), factors(lse_block, together));
  lse_here.copy_(together);
}

}  // namespace drivetrain::ring
