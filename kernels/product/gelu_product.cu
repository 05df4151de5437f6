// cuBLASLt sees matrices by columns: row-major [R, C] is C x R for it. So it is asked for out^T = W x^T of M x N, with
// bias and `pre` as it wants them: one number per row, and columns M elements apart.
#include "kernels/product/gelu_product.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <utility>

namespace drivetrain::kernels {
namespace {

// Opened when it is first wanted, by the name under which LibTorch has it: most runs call nothing of it.
struct CublasLt {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_product = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) prefer = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_product = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  bool found = false;

  CublasLt() {
    void* const library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    const auto find = [library](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    found = library && find(create, "cublasLtCreate") && find(create_product, "cublasLtMatmulDescCreate") &&
            find(set, "cublasLtMatmulDescSetAttribute") && find(create_layout, "cublasLtMatrixLayoutCreate") &&
            find(create_preference, "cublasLtMatmulPreferenceCreate") &&
            find(prefer, "cublasLtMatmulPreferenceSetAttribute") && find(choose, "cublasLtMatmulAlgoGetHeuristic") &&
            find(multiply, "cublasLtMatmul") && find(destroy_product, "cublasLtMatmulDescDestroy") &&
            find(destroy_layout, "cublasLtMatrixLayoutDestroy") &&
            find(destroy_preference, "cublasLtMatmulPreferenceDestroy");
  }
};

const CublasLt& lt() {
  static const CublasLt library;
  return library;
}

// Of one shape on one device. What is enqueued or recorded does not need it any more.
struct Prepared {
  Prepared() = default;
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  ~Prepared() {
    for (const cublasLtMatrixLayout_t layout : {weight, x, out})
      if (layout) lt().destroy_layout(layout);
    if (product) lt().destroy_product(product);
  }

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t weight = nullptr, x = nullptr, out = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};

  template <class Value>
  cublasStatus_t set(cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
    return lt().set(product, attribute, &value, sizeof value);
  }
  bool point_to(const GeluProduct& op) const {
    return set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, op.pre) == CUBLAS_STATUS_SUCCESS &&
           (!op.bias || set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, op.bias) == CUBLAS_STATUS_SUCCESS);
  }
};

// Device, type, direction, whether there is a bias, sizes, and how far pointers are aligned: kernels ask for that.
using Key = std::tuple<int, Dtype, bool, bool, int64_t, int64_t, int64_t, uint32_t>;

uint32_t alignment_of(const GeluProduct& op) {
  uintptr_t bits = 256;  // no kernel wants more
  for (const void* pointer :
       {op.x, op.weight, op.bias, static_cast<const void*>(op.pre), static_cast<const void*>(op.out)})
    bits |= reinterpret_cast<uintptr_t>(pointer);
  return static_cast<uint32_t>(bits & -bits);
}

bool describe(Prepared& p, const GeluProduct& op) {
  const cudaDataType_t type = op.dtype == Dtype::bf16 ? CUDA_R_16BF : CUDA_R_16F;
  const cublasLtEpilogue_t epilogue = op.backward ? CUBLASLT_EPILOGUE_DGELU
                                      : op.bias   ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                                                  : CUBLASLT_EPILOGUE_GELU_AUX;
  const cublasOperation_t turned = op.backward ? CUBLAS_OP_N : CUBLAS_OP_T;
  const int64_t rows = op.backward ? op.m : op.k, columns = op.backward ? op.k : op.m;
  const auto good = [](cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; };
  const auto layout = [&](cublasLtMatrixLayout_t& of, int64_t r, int64_t c) {
    return good(lt().create_layout(&of, type, static_cast<uint64_t>(r), static_cast<uint64_t>(c), r));
  };
  return good(lt().create_product(&p.product, CUBLAS_COMPUTE_32F, CUDA_R_32F)) &&
         good(p.set(CUBLASLT_MATMUL_DESC_TRANSA, turned)) && good(p.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue)) &&
         good(p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, op.m)) &&
         (!op.bias || good(p.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type))) && layout(p.weight, rows, columns) &&
         layout(p.x, op.k, op.n) && layout(p.out, op.m, op.n) && p.point_to(op);
}

bool choose(Prepared& p, uint32_t alignment) {
  cublasLtMatmulPreference_t preference = nullptr;
  if (lt().create_preference(&preference) != CUBLAS_STATUS_SUCCESS) return false;
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    return lt().prefer(preference, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
  };
  bool good = prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kGeluProductWorkspace)) &&
              prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,  // parts of sums are not added in 16 bits
                     static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  for (const auto operand : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                             CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    good = good && prefer(operand, alignment);
  cublasLtMatmulHeuristicResult_t answer = {};
  int found = 0;
  good = good && lt().choose(p.handle, p.product, p.weight, p.x, p.out, p.out, preference, 1, &answer, &found) ==
                     CUBLAS_STATUS_SUCCESS;
  lt().destroy_preference(preference);
  p.algorithm = answer.algo;
  return good && found > 0 && answer.state == CUBLAS_STATUS_SUCCESS;
}

// Both under the lock of the caller. Null: CUDA is not there.
cublasLtHandle_t handle_of(int device) {
  static std::map<int, cublasLtHandle_t> handles;  // light, and without a workspace of their own
  cublasLtHandle_t& handle = handles[device];
  return handle || lt().create(&handle) == CUBLAS_STATUS_SUCCESS ? handle : nullptr;
}

// More than a training run has shapes; then all are forgotten: texts that are generated have one for each length.
constexpr size_t kMostKept = 64;

// Null: there is none, which is kept as well.
const Prepared* prepared(const GeluProduct& op, int device, cublasLtHandle_t handle) {
  static std::map<Key, std::unique_ptr<Prepared>> all;
  const uint32_t alignment = alignment_of(op);
  const Key key{device, op.dtype, op.backward, op.bias != nullptr, op.n, op.k, op.m, alignment};
  if (const auto known = all.find(key); known != all.end()) return known->second.get();
  if (all.size() >= kMostKept) all.clear();
  auto p = std::make_unique<Prepared>();
  p->handle = handle;
  if (!describe(*p, op) || !choose(*p, alignment)) p.reset();
  return (all[key] = std::move(p)).get();
}

// With operands of a later call, wherever they will lie.
GeluProduct anywhere(GeluProduct op) {
  op.x = op.pre = op.out = reinterpret_cast<void*>(16);
  return op;
}

}  // namespace

int gelu_product_cuda(const GeluProduct& op, void* stream) {
  if (op.n == 0) return cudaSuccess;
  if (!gelu_product_fits(op.dtype, op.k, op.m)) return cudaErrorInvalidValue;
  if (!lt().found) return kNoCublasLt;
  static std::mutex mutex;  // descriptors hold the pointers of a call
  const std::lock_guard lock(mutex);
  int device = 0;
  cudaGetDevice(&device);
  const cublasLtHandle_t handle = handle_of(device);
  if (!handle) return kCublasLtFails;
  const Prepared* const p = prepared(op.out ? op : anywhere(op), device, handle);
  if (!p) return kNoSuchProduct;
  if (!op.out) return cudaSuccess;
  const float one = 1, zero = 0;
  if (!p->point_to(op)) return kNoSuchProduct;
  const cublasStatus_t status = lt().multiply(
      p->handle, p->product, &one, op.weight, p->weight, op.x, p->x, &zero, op.out, p->out, op.out, p->out,
      &p->algorithm, op.workspace, static_cast<size_t>(kGeluProductWorkspace), static_cast<cudaStream_t>(stream));
  return status == CUBLAS_STATUS_SUCCESS ? static_cast<int>(cudaSuccess) : kNotStarted - static_cast<int>(status);
}

}  // namespace drivetrain::kernels
