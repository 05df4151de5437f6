#include "generate/generation_cache.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

// x [B, S, G, C] behind the `past` positions of each row of `kept`.
void copy_behind(const at::Tensor& kept_BGTC, const std::vector<int64_t>& past, const at::Tensor& x) {
  const at::Tensor x_BGSC = x.transpose(1, 2);
  const int64_t S = x.size(1);
  if (std::all_of(past.begin(), past.end(), [&](int64_t n) { return n == past.front(); })) {
    kept_BGTC.narrow(2, past.front(), S).copy_(x_BGSC);
    return;
  }
  for (int64_t b = 0; b < x.size(0); ++b)
    kept_BGTC.select(0, b).narrow(1, past[static_cast<size_t>(b)], S).copy_(x_BGSC.select(0, b));
}

}  // namespace

GenerationCache::GenerationCache(const StepContext& context, int64_t rows, int64_t capacity)
    : context_(context), capacity_(capacity), past_(static_cast<size_t>(rows)) {}

std::pair<at::Tensor, at::Tensor> GenerationCache::append(const std::string& name, const at::Tensor& k,
                                                          const at::Tensor& v) {
  const int64_t B = k.size(0), S = k.size(1), T = *std::max_element(past_.begin(), past_.end()) + S;
  if (B != static_cast<int64_t>(past_.size()) || T > capacity_)
    throw fail(ErrorCode::config, name, ": keys of ", B, " rows up to position ", T, " for a cache of ", past_.size(),
               " rows and ", capacity_, " positions");
  Layer& layer = layers_[name];
  if (std::exchange(layer.in_this_pass, true))
    throw fail(ErrorCode::config, name, ": a layer of this name has appended its keys in this pass already; layers of ",
               "a model have names of their own");
  if (!layer.k.defined()) {
    layer.k = at::empty({B, k.size(2), capacity_, k.size(3)}, k.options());
    layer.v = at::empty({B, v.size(2), capacity_, v.size(3)}, v.options());
  }
  units_.insert(context_.visit().unit);
  copy_behind(layer.k, past_, k), copy_behind(layer.v, past_, v);
  return {layer.k.narrow(2, 0, T).transpose(1, 2), layer.v.narrow(2, 0, T).transpose(1, 2)};
}

int64_t GenerationCache::bytes() const {
  size_t sum = 0;
  for (const auto& [name, layer] : layers_)
    if (layer.k.defined()) sum += layer.k.nbytes() + layer.v.nbytes();
  return static_cast<int64_t>(sum);
}

void GenerationCache::advance(const std::vector<int64_t>& columns) {
  for (size_t b = 0; b < past_.size(); ++b) past_[b] += columns.at(b);
  for (auto& [name, layer] : layers_) layer.in_this_pass = false;
}

void GenerationCache::keep(const std::vector<int64_t>& rows) {
  std::vector<int64_t> past;
  for (const int64_t row : rows) past.push_back(past_.at(static_cast<size_t>(row)));
  past_ = std::move(past);
  for (auto& [name, layer] : layers_) {
    const at::Tensor index = at::tensor(rows, at::TensorOptions(at::kLong).device(layer.k.device()));
    layer.k = layer.k.index_select(0, index), layer.v = layer.v.index_select(0, index);
  }
}

}  // namespace drivetrain
