// Products of one row with weights that no cache holds: a layer's and an output layer's of GPT-2, for the next token.
#include "kernels/common/bench.h"
#include "kernels/product/few_rows.h"

namespace drivetrain::kernels {
namespace {

std::vector<BenchCase> few_rows_cases(BenchMemory& memory, Dtype dtype) {
  std::vector<BenchCase> cases;
  for (const int64_t rows_of_weight : {3072, 50257}) {
    FewRowsProduct p;
    p.m = 1, p.n = rows_of_weight, p.k = 768, p.dtype = dtype;
    p.a = memory.numbers(p.k, dtype), p.b = memory.numbers(p.n * p.k, dtype), p.c = memory.numbers(p.n, dtype);
    p.b_stride = p.k;
    const double bytes = bytes_of(dtype) * static_cast<double>(p.n * p.k);
    cases.push_back(
        bench_case("few_rows_product", shape_text({1, p.n, p.k}), bytes, p.n, p, few_rows_product_cpu, nullptr));
  }
  return cases;
}

const BenchRegistration few_rows_registered("few_rows_product", few_rows_cases);

}  // namespace
}  // namespace drivetrain::kernels
