// What tests take for cuBLASLt: products of 16 bits by plain loops over the host's memory, at once, with GELU or its
// gradient in the epilogue. It reads the descriptors as they are and takes no more than cuBLASLt does. An algorithm is
// good for the descriptors that it was asked for with, and for pointers that are aligned as was said then.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace {

template <class Kind>
struct Attributes {
  std::map<int, std::vector<char>> values;
  cublasStatus_t set(Kind attribute, const void* value, size_t size) {
    const char* const bytes = static_cast<const char*>(value);
    values[attribute].assign(bytes, bytes + size);
    return CUBLAS_STATUS_SUCCESS;
  }
  template <class Value>
  Value get(Kind attribute, Value otherwise) const {
    const auto found = values.find(attribute);
    if (found == values.end()) return otherwise;
    if (found->second.size() != sizeof(Value)) std::abort();  // cuBLASLt knows the size of each
    std::memcpy(&otherwise, found->second.data(), sizeof(Value));
    return otherwise;
  }
};
using Product = Attributes<cublasLtMatmulDescAttributes_t>;
using Preference = Attributes<cublasLtMatmulPreferenceAttributes_t>;
struct Layout {
  cudaDataType type;
  int64_t rows, columns, ld;
};

int64_t alive = 0;  // descriptors, layouts and preferences

template <class Handle, class Made>
cublasStatus_t give(Handle* to, Made* made) {
  ++alive;
  *to = reinterpret_cast<Handle>(made);
  return CUBLAS_STATUS_SUCCESS;
}
template <class Made, class Handle>
cublasStatus_t drop(Handle handle) {
  --alive;
  delete reinterpret_cast<Made*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

template <class To, class From>
To& as(From* opaque) {
  return *reinterpret_cast<To*>(opaque);
}
bool is_aligned(const void* pointer, uintptr_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

double value(cudaDataType type, const void* from, int64_t i) {
  return type == CUDA_R_16BF ? static_cast<float>(static_cast<const __nv_bfloat16*>(from)[i])
                             : static_cast<float>(static_cast<const __half*>(from)[i]);
}
void store(cudaDataType type, void* to, int64_t i, double x) {
  if (type == CUDA_R_16BF)
    static_cast<__nv_bfloat16*>(to)[i] = static_cast<__nv_bfloat16>(static_cast<float>(x));
  else
    static_cast<__half*>(to)[i] = static_cast<__half>(static_cast<float>(x));
}

const double kLine = std::sqrt(2 / std::acos(-1.0));
double gelu(double x) { return 0.5 * x * (1 + std::tanh(kLine * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  const double t = std::tanh(kLine * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kLine * (1 + 3 * 0.044715 * x * x);
}

// What a product is, read of its descriptors once.
struct Call {
  bool turned_a, turned_b;
  uint32_t epilogue;
  int64_t aux_ld, m, n, k;
  void* aux;
  const void* bias;

  Call(const Product& p, const Layout& a, const Layout& b, const Layout& d) {
    turned_a = p.get<int32_t>(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N) == CUBLAS_OP_T;
    turned_b = p.get<int32_t>(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N) == CUBLAS_OP_T;
    epilogue = p.get<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
    aux_ld = p.get<int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 0);
    aux = p.get<void*>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, nullptr);
    bias = p.get<const void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr);
    m = d.rows, n = d.columns, k = turned_a ? a.rows : a.columns;
    const bool fit = (turned_a ? a.columns : a.rows) == m && (turned_b ? b.columns : b.rows) == k &&
                     (turned_b ? b.rows : b.columns) == n && a.ld >= a.rows && b.ld >= b.rows && d.ld >= d.rows;
    const bool same = a.type == b.type && a.type == d.type && (d.type == CUDA_R_16BF || d.type == CUDA_R_16F) &&
                      p.get<int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, d.type) == d.type;
    const bool known = epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
                       epilogue == CUBLASLT_EPILOGUE_DGELU;
    good = fit && same && known && (epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) == (bias != nullptr) && aux &&
           is_aligned(aux, 16) && aux_ld % 8 == 0 && aux_ld >= m;
  }
  bool good;
};

uint64_t digest(const Product& p, const Layout& a, const Layout& b, const Layout& d) {
  const Call call(p, a, b, d);
  std::string text;
  for (const int64_t part : {a.rows, a.columns, a.ld, b.rows, b.columns, b.ld, d.rows, d.columns, d.ld, call.aux_ld,
                             int64_t{d.type}, int64_t{call.epilogue}, int64_t{call.turned_a}})
    text += std::to_string(part) + " ";
  return std::hash<std::string>()(text);
}

}  // namespace

extern "C" {
// None where STAND_IN_PRODUCTS is "no handle".
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static char here;
  if (const char* const said = std::getenv("STAND_IN_PRODUCTS"); said && std::string(said) == "no handle")
    return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = reinterpret_cast<cublasLtHandle_t>(&here);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute, cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  return give(made, new Product);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t of, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size) {
  return as<Product>(of).set(attribute, value, size);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  return give(made, new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld});
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) { return give(made, new Preference); }
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t one) { return drop<Product>(one); }
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t one) { return drop<Layout>(one); }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t one) { return drop<Preference>(one); }
int64_t stand_in_alive() { return alive; }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t of,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t size) {
  return as<Preference>(of).set(attribute, value, size);
}
// None where STAND_IN_PRODUCTS is "none", none with a gradient where it is "forward", and for operands on 16 bytes
// alone where it is "aligned".
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int wanted, cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  const char* const set = std::getenv("STAND_IN_PRODUCTS");
  const std::string said = set ? set : "";
  const auto& prefers = as<Preference>(preference);
  const auto alignment = prefers.get<uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 256);
  const Call call(as<Product>(product), as<Layout>(a), as<Layout>(b), as<Layout>(d));
  const bool has = said != "none" && !(said == "forward" && call.epilogue == CUBLASLT_EPILOGUE_DGELU) &&
                   !(said == "aligned" && alignment < 16);
  // All of cuBLASLt's own schemes but the one in float32 add parts of sums in the type of the result.
  const auto adds = prefers.get<uint32_t>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_MASK);
  if (!has || !call.good || c != d || wanted < 1 || adds & ~CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  results[0] = {};
  results[0].algo.data[0] = digest(as<Product>(product), as<Layout>(a), as<Layout>(b), as<Layout>(d));
  results[0].algo.data[1] = alignment;
  results[0].workspaceSize = 1024;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha, const void* A,
                              cublasLtMatrixLayout_t a_layout, const void* B, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* C, cublasLtMatrixLayout_t, void* D,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t) {
  const auto& p = as<Product>(product);
  const auto &a = as<Layout>(a_layout), &b = as<Layout>(b_layout), &d = as<Layout>(d_layout);
  const Call call(p, a, b, d);
  if (const char* const said = std::getenv("STAND_IN_PRODUCTS"); said && std::string(said).rfind("status ", 0) == 0)
    return static_cast<cublasStatus_t>(std::atoi(said + 7));
  if (!call.good || C != D || algo->data[0] != digest(p, a, b, d)) return CUBLAS_STATUS_INVALID_VALUE;
  for (const void* pointer : {A, B, static_cast<const void*>(D)})
    if (!is_aligned(pointer, algo->data[1])) return CUBLAS_STATUS_INVALID_VALUE;
  if (workspace_bytes < 1024 || !is_aligned(workspace, 16)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memset(workspace, 0x7f, workspace_bytes);  // it is the call's
  if (*static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  for (int64_t j = 0; j < call.n; ++j)
    for (int64_t i = 0; i < call.m; ++i) {
      double sum = 0;
      for (int64_t l = 0; l < call.k; ++l)
        sum += value(a.type, A, call.turned_a ? l + i * a.ld : i + l * a.ld) *
               value(b.type, B, call.turned_b ? j + l * b.ld : l + j * b.ld);
      const int64_t at = i + j * d.ld, aux = i + j * call.aux_ld;
      if (call.epilogue == CUBLASLT_EPILOGUE_DGELU) {
        store(d.type, D, at, sum * gelu_slope(value(d.type, call.aux, aux)));
        continue;
      }
      if (call.bias) sum += value(d.type, call.bias, i);
      store(d.type, call.aux, aux, sum);
      store(d.type, D, at, gelu(sum));
    }
  return CUBLAS_STATUS_SUCCESS;
}
}
