// Backward of the word embedding: each token's row is read and added to a row of the table.
#include "kernels/common/bench.h"
#include "kernels/embedding/embedding.h"

namespace drivetrain::kernels {
namespace {

std::vector<BenchCase> embedding_cases(BenchMemory& memory, Dtype dtype) {
  EmbeddingBackward e;
  e.tokens = memory.rows(1024), e.vocabulary = 50304, e.columns = 768, e.dtype = dtype;
  e.dy = memory.numbers(e.tokens * e.columns, dtype);
  e.ids = memory.indices(e.tokens, e.vocabulary);
  e.dweight = memory.floats(e.vocabulary * e.columns);
  memory.sorted(e.ids, e.tokens, e.order, e.sorted_ids);
  const double bytes = (bytes_of(dtype) + 8) * static_cast<double>(e.tokens * e.columns);
  return {bench_case("embedding backward", shape_text({e.tokens, e.columns}), bytes, e.columns, e,
                     embedding_backward_cpu, DRIVETRAIN_BENCH_CUDA(embedding_backward_cuda))};
}

const BenchRegistration embedding_registered("embedding", embedding_cases);

}  // namespace
}  // namespace drivetrain::kernels
