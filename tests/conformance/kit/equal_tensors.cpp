#include <drivetrain/testkit/kit/equal_tensors.h>

#include <ATen/ops/equal.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace drivetrain::test {
namespace equal_tensors_text {

std::string index_text(int64_t flat, at::IntArrayRef sizes) {
  std::string text;
  for (size_t d = sizes.size(); d-- > 0; flat /= sizes[d])
    text = std::to_string(flat % sizes[d]) + (text.empty() ? "" : ", ") + text;
  return "[" + text + "]";
}

std::string number_text(double x) {  // every bit of a float32 shows
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", x);
  return text;
}

}  // namespace equal_tensors_text

testing::AssertionResult equal_tensors(const at::Tensor& found, const at::Tensor& wanted) {
  using namespace equal_tensors_text;
  if (!found.defined() || !wanted.defined())
    return found.defined() == wanted.defined() ? testing::AssertionSuccess()
                                               : testing::AssertionFailure() << "one of the tensors is undefined";
  if (found.sizes() != wanted.sizes() || found.scalar_type() != wanted.scalar_type())
    return testing::AssertionFailure() << "shapes " << found.sizes() << " and " << wanted.sizes() << ", dtypes "
                                       << found.scalar_type() << " and " << wanted.scalar_type();
  if (at::equal(found, wanted)) return testing::AssertionSuccess();
  const at::Tensor a = found.detach().cpu().to(at::kDouble).contiguous(),
                   b = wanted.detach().cpu().to(at::kDouble).contiguous();
  const double *x = a.const_data_ptr<double>(), *y = b.const_data_ptr<double>();
  int64_t first = -1, count = 0;
  double most = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    if (x[i] == y[i]) continue;
    if (count++ == 0) first = i;
    most = std::max(most, std::abs(x[i] - y[i]));  // NaN: stays
  }
  if (count == 0) return testing::AssertionFailure() << "the values differ beyond float64";
  return testing::AssertionFailure() << "element " << index_text(first, a.sizes()) << " is " << number_text(x[first])
                                     << " and " << number_text(y[first]) << "; " << count << " of " << a.numel()
                                     << " differ, by up to " << number_text(most);
}

}  // namespace drivetrain::test
