// What a choice of kernels would save: products of training steps by each of the kernels that cuBLASLt names for them,
// in turns, and whether they have the bits of its first choice. gpu_check compiles it where nvcc is and prints the end.
//
//   product_choices [--without-8-bits]
//
// cuBLASLt sees matrices by columns. Operands are normal numbers: random bits or zeros take another power, by which
// steps are limited. Legend: T tokens; a layer y [T, out] = x [T, in] W^T.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr size_t kWorkspace = size_t{32} << 20, kBytes = size_t{1} << 30;
constexpr int kMost = 16, kRounds = 5;  // kernels of a product, and how often they take turns
constexpr double kMicroseconds = 2500;  // of one kernel in a round
constexpr double kFlopsPerUs = 6e8;     // about as many, to choose how often a kernel is called

template <class Value>
Value good(Value status) {
  if (static_cast<int>(status) != 0) {
    std::fprintf(stderr, "product_choices: CUDA or cuBLASLt ends with %d\n", static_cast<int>(status));
    std::exit(1);
  }
  return status;
}

__device__ float normal(size_t i, unsigned seed) {
  unsigned h = static_cast<unsigned>(i) * 2654435761u + seed;
  float sum = 0;
  for (int r = 0; r < 4; ++r) {
    h ^= h >> 15, h *= 2246822519u, h ^= h >> 13;
    sum += static_cast<float>(h >> 8) / 8388608.0F - 1;
  }
  return sum;
}

template <class Element>
__global__ void fill(Element* to, size_t n, unsigned seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x)
    to[i] = Element(normal(i, seed));
}

__global__ void count_others(const unsigned* a, const unsigned* b, size_t n, unsigned* out) {
  unsigned others = 0;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x)
    others += a[i] != b[i];
  if (others) atomicAdd(out, others);
}

// C [m, n] = A B by columns; `times`: in a step.
struct Product {
  std::string name;
  int m, n, k;
  bool a_turned, b_turned, wide, eight_bits;
  double times;
  double flops() const { return 2.0 * m * n * k; }
  size_t words() const { return static_cast<size_t>(m) * n * (wide ? 4 : 2) / 4; }
};

// The three products of a layer: of 8 bits each sums along the rows of both operands.
void add_layer(std::vector<Product>& to, const std::string& name, int T, int in, int out, double times, bool eight) {
  to.push_back({name + " forward", out, T, in, true, false, false, eight, times});
  to.push_back({name + " input gradient", in, T, out, eight, false, false, eight, times});
  to.push_back({name + " weight gradient", in, out, T, eight, !eight, true, eight, times});
}

class Bench {
 public:
  Bench() {
    good(cublasLtCreate(&handle_));
    for (void** p : {&a_, &b_, &c_, &first_}) good(cudaMalloc(p, kBytes));
    good(cudaMalloc(&workspace_, kWorkspace)), good(cudaMalloc(&scratch_, 8));
    good(cudaEventCreate(&begin_)), good(cudaEventCreate(&end_));
    const float one = 1;
    good(cudaMemcpy(scratch_, &one, 4, cudaMemcpyHostToDevice));
  }

  void fill_operands(bool eight_bits) {
    for (void* p : {a_, b_}) {
      const unsigned seed = p == a_ ? 1 : 77;
      if (eight_bits)
        fill<<<2000, 256>>>(static_cast<__nv_fp8_e4m3*>(p), kBytes, seed);
      else
        fill<<<2000, 256>>>(static_cast<__nv_bfloat16*>(p), kBytes / 2, seed);
    }
    good(cudaDeviceSynchronize());
  }

  // Microseconds of the first choice, and of the fastest kernel with its bits.
  std::pair<double, double> run(const Product& p) {
    describe(p);
    std::vector<std::vector<double>> times(found_);
    std::vector<unsigned> others(found_);
    for (int i = 0; i < found_; ++i) others[i] = bits_that_differ(p, i);
    const int calls = std::clamp(static_cast<int>(kMicroseconds * kFlopsPerUs / p.flops()), 2, 40);
    for (int round = 0; round < kRounds; ++round)
      for (int i = 0; i < found_; ++i) times[i].push_back(microseconds(i, calls));
    int best = 0;
    std::vector<double> middle;
    for (std::vector<double>& of_kernel : times) {
      std::sort(of_kernel.begin(), of_kernel.end());
      middle.push_back(of_kernel[of_kernel.size() / 2]);
    }
    std::printf("%-32s %6d %6d %6d:", p.name.c_str(), p.m, p.n, p.k);
    for (int i = 0; i < found_; ++i) {
      if (others[i] == 0 && middle[i] < middle[best]) best = i;
      std::printf(" %.0f%s", middle[i], others[i] ? "*" : "");
    }
    std::printf("; kernel %d, %.3f of the first\n", best, middle[best] / middle[0]);
    return {middle[0], middle[best]};
  }

 private:
  template <class Attribute, class Value>
  void set(Attribute attribute, const Value& value) {
    good(cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof value));
  }

  void describe(const Product& p) {
    const cudaDataType_t type = p.eight_bits ? CUDA_R_8F_E4M3 : CUDA_R_16BF, out = p.wide ? CUDA_R_32F : CUDA_R_16BF;
    good(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.a_turned ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.b_turned ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.eight_bits) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scratch_), set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scratch_);
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(p.name.ends_with("forward")));
    }
    const auto layout = [](cublasLtMatrixLayout_t& of, cudaDataType_t t, int rows, int columns, bool turned) {
      good(cublasLtMatrixLayoutCreate(&of, t, turned ? columns : rows, turned ? rows : columns,
                                      turned ? columns : rows));
    };
    layout(of_a_, type, p.m, p.k, p.a_turned), layout(of_b_, type, p.k, p.n, p.b_turned);
    layout(of_c_, out, p.m, p.n, false);
    cublasLtMatmulPreference_t preference;
    good(cublasLtMatmulPreferenceCreate(&preference));
    good(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                              sizeof kWorkspace));
    good(cublasLtMatmulAlgoGetHeuristic(handle_, product_, of_a_, of_b_, of_c_, of_c_, preference, kMost, kernels_,
                                        &found_));
    int usable = 0;  // some that are named cannot be launched
    for (int i = 0; i < found_; ++i)
      if (launch(i) == CUBLAS_STATUS_SUCCESS) kernels_[usable++] = kernels_[i];
    found_ = usable;
    if (found_ > 0) return;
    std::fprintf(stderr, "product_choices: cuBLASLt has no kernel for %s\n", p.name.c_str());
    std::exit(1);
  }

  cublasStatus_t launch(int kernel) {
    const float one = 1, zero = 0;
    return cublasLtMatmul(handle_, product_, &one, a_, of_a_, b_, of_b_, &zero, c_, of_c_, c_, of_c_,
                          &kernels_[kernel].algo, workspace_, kWorkspace, nullptr);
  }
  void multiply(int kernel) { good(launch(kernel)); }

  unsigned bits_that_differ(const Product& p, int kernel) {
    good(cudaMemset(c_, 0xff, p.words() * 4));
    multiply(kernel);
    if (kernel == 0) good(cudaMemcpy(first_, c_, p.words() * 4, cudaMemcpyDeviceToDevice));
    unsigned* const others = static_cast<unsigned*>(scratch_) + 1;
    good(cudaMemset(others, 0, 4));
    count_others<<<2000, 256>>>(static_cast<unsigned*>(first_), static_cast<unsigned*>(c_), p.words(), others);
    unsigned here = 0;
    good(cudaMemcpy(&here, others, 4, cudaMemcpyDeviceToHost));
    return here;
  }

  double microseconds(int kernel, int calls) {
    good(cudaEventRecord(begin_));
    for (int i = 0; i < calls; ++i) multiply(kernel);
    good(cudaEventRecord(end_)), good(cudaEventSynchronize(end_));
    float ms = 0;
    good(cudaEventElapsedTime(&ms, begin_, end_));
    return 1e3 * ms / calls;
  }

  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t of_a_ = nullptr, of_b_ = nullptr, of_c_ = nullptr;
  cublasLtMatmulHeuristicResult_t kernels_[kMost] = {};
  int found_ = 0;
  void *a_ = nullptr, *b_ = nullptr, *c_ = nullptr, *first_ = nullptr, *workspace_ = nullptr, *scratch_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

std::vector<Product> products_of(const std::string& step) {
  std::vector<Product> all;
  if (step == "gpt2_124m") {
    const int T = 32768, H = 768;
    add_layer(all, "q, k, v", T, H, 3 * H, 12, false), add_layer(all, "output", T, H, H, 12, false);
    add_layer(all, "mlp, in", T, H, 4 * H, 12, false), add_layer(all, "mlp, out", T, 4 * H, H, 12, false);
    add_layer(all, "head", 8192, H, 50304, 4, false);
    return all;
  }
  const bool eight = step == "llama_7b, 8 bits";
  const int T = 16384, H = 4096, F = 11008;
  add_layer(all, "q, k, v", T, H, 3 * H, 12, eight), add_layer(all, "output", T, H, H, 12, eight);
  add_layer(all, "mlp, in", T, H, 2 * F, 12, eight), add_layer(all, "mlp, out", T, F, H, 12, eight);
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const bool without_8_bits = argc > 1 && std::string(argv[1]) == "--without-8-bits";
  Bench bench;
  std::string ends;
  for (const char* step : {"gpt2_124m", "llama_7b", "llama_7b, 8 bits"}) {
    const bool eight_bits = std::string(step).ends_with("8 bits");
    if (eight_bits && without_8_bits) continue;
    bench.fill_operands(eight_bits);
    std::printf("%s: microseconds by cuBLASLt's kernels in its order, * with other bits than the first\n", step);
    double first = 0, best = 0;
    for (const Product& p : products_of(step)) {
      const auto [one, other] = bench.run(p);
      first += p.times * one / 1e3, best += p.times * other / 1e3;
    }
    char text[160];
    std::snprintf(text, sizeof text, "%s%s %.1f ms of a step, by the fastest kernels of the same bits %.1f",
                  ends.empty() ? "" : "; ", step, first, best);
    ends += text;
  }
  std::printf("%s\n", ends.c_str());
}
