#include "bench/block_rates.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include <drivetrain/toolkit/dtype_name.h>
#include <drivetrain/toolkit/layers/linear.h>
#include <drivetrain/toolkit/ops/ops.h>

#include "bench/eight_bit_layers.h"
#include "bench/timing.h"
#include "predict/shape_work.h"

namespace drivetrain {
namespace {

// Of all layers together: more than a core's own cache, or that of a GPU.
constexpr double kFarBytes = 64 << 20;
constexpr double kMostLayers = 64;
constexpr int64_t kRounds = 5;
constexpr int kOldestArchOf8Bits = 89;  // Ada, Hopper and what came after them multiply in 8 bits
constexpr int kArchOfBlocks = 90;       // with scales of blocks Hopper alone, by cuBLASLt

int64_t layers_of(double bytes_of_one) {
  return static_cast<int64_t>(std::clamp(std::ceil(kFarBytes / bytes_of_one), 1.0, kMostLayers));
}

ParamPtr param_of(const at::Device& device, at::ScalarType type, const std::vector<int64_t>& sizes) {
  const auto param = std::make_shared<Param>("measured", Layout::whole(sizes), InitRule::zeros());
  param->tensor = numbers(device, type, sizes);
  param->grad = at::zeros(sizes, at::TensorOptions(at::kFloat).device(device));
  return param;
}

// --- products

struct LinearLayer {
  at::Tensor x, dy, y;
  ParamPtr weight;
  void forward() { y = product(x, weight->tensor); }
  void backward() {
    product_backward(dy, weight->tensor);
    weight->restart_grad();
    accumulate_weight_grad(*weight, dy, x);
    y.reset();
  }
};

// Forward through all layers and backward.
template <class Make>
double seconds_of_layers(const at::Device& device, int64_t count, const Make& make) {
  std::vector<decltype(make())> layers;
  for (; count > 0; --count) layers.push_back(make());
  return typical_seconds(device, [&] {
    for (auto& layer : layers) layer.forward();
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) layer->backward();
  });
}

// --- passes over memory

// Work that is timed behind a product which is not: so it finds a processor's caches as in a step.
class Between {
 public:
  explicit Between(const at::Device& device) : device_(device), x_(numbers(device, at::kFloat, {kSize, kSize})) {}
  double seconds_of(const std::function<void()>& work) const {
    product(x_, x_);
    return drivetrain::seconds_of(device_, work);
  }

 private:
  static constexpr int64_t kSize = 512;
  at::Device device_;
  at::Tensor x_;
};

struct BlockSizes {
  int64_t tokens, hidden, heads, groups, head_dim, ffn;
};

// Without its products: what they would give is there already.
struct BlockPasses {
  BlockPasses(const at::Device& device, const BlockSizes& sizes) : n(sizes) {
    const auto rows = [&](int64_t columns) { return numbers(device, at::kFloat, {1, n.tokens, columns}); };
    const auto param = [&](int64_t columns) { return param_of(device, at::kFloat, {columns}); };
    const int64_t qkv_columns = (n.heads + 2 * n.groups) * n.head_dim;
    qkv = rows(qkv_columns), fc = rows(n.ffn);
    qkv_bias = param(qkv_columns), fc_bias = param(n.ffn), out_bias = param(n.hidden);
    gain = param(n.hidden), shift = param(n.hidden);
  }

  // x and branch: what comes from the layer before, and of which products of this one are told.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& branch) {
    norm1 = ops::norm(x, branch, gain->tensor, shift->tensor, args);
    norm1.y.reset();
    heads = ops::split_heads(qkv, qkv_bias->tensor, {}, n.heads, n.groups);
    norm2 = ops::norm(norm1.sum, branch, gain->tensor, shift->tensor, args);
    norm2.y.reset();
    ops::activation(ops::Activation::gelu_tanh, fc, fc_bias->tensor);
    return norm2.sum;
  }

  at::Tensor backward(const at::Tensor& dsum, const at::Tensor& dbranch) {
    for (const ParamPtr& param : {qkv_bias, fc_bias, out_bias, gain, shift}) param->restart_grad();
    ops::accumulate_bias_grad(*out_bias, dbranch);
    const at::Tensor act = ops::activation(ops::Activation::gelu_tanh, fc, fc_bias->tensor);
    ops::activation_backward(ops::Activation::gelu_tanh, fc, act, fc_bias.get());
    const at::Tensor dsum2 = norm_backward(norm2, dbranch, dsum);
    ops::accumulate_bias_grad(*out_bias, dsum2);
    ops::split_heads_backward(heads, {}, qkv_bias.get());
    heads = {};
    return norm_backward(norm1, dbranch, dsum2);
  }

  at::Tensor norm_backward(ops::Normed& norm, const at::Tensor& dy, const at::Tensor& dsum) {
    norm.y = ops::norm_again(norm, gain->tensor, shift->tensor, args);
    at::Tensor dx = ops::norm_backward(dy, dsum, norm, *gain, shift.get(), args);
    norm = {};
    return dx;
  }

  BlockSizes n;
  ops::NormArgs args;
  at::Tensor qkv, fc;
  ParamPtr qkv_bias, fc_bias, out_bias, gain, shift;
  ops::Normed norm1, norm2;
  ops::Heads heads;
};

}  // namespace

double typical_seconds(const at::Device& device, const std::function<void()>& work) {
  return spread_of(take_turns(device, {work}, kRounds).front()).median;
}

std::vector<ProductType> product_types(const at::Device& device, int arch) {
  std::vector<ProductType> types = {{dtype_name(at::kFloat), at::kFloat}, {dtype_name(at::kBFloat16), at::kBFloat16}};
  if (device.is_cpu()) return types;
  types.push_back({dtype_name(at::kHalf), at::kHalf});
  if (arch >= kOldestArchOf8Bits) types.push_back({"float8", at::kFloat8_e4m3fn});
  if (arch == kArchOfBlocks) types.push_back({"float8_blocks", at::kFloat8_e4m3fn, /*of_blocks=*/true});
  return types;
}

double product_rate(const at::Device& device, const ProductType& given, const MeasuredProduct& shape) {
  const at::ScalarType type = given.type;
  const auto rows = static_cast<int64_t>(shape.rows), out = static_cast<int64_t>(shape.out),
             in = static_cast<int64_t>(shape.in);
  const double bytes = static_cast<double>(c10::elementSize(type)) *
                       (shape.rows * shape.in + 2 * shape.rows * shape.out + 2 * shape.out * shape.in);
  const int64_t count = layers_of(bytes);
  const auto seconds = [&] {
    if (given.of_blocks)
      return seconds_of_layers(device, count, [&] { return BlockScaledLayer(device, rows, out, in); });
    if (type == at::kFloat8_e4m3fn)
      return seconds_of_layers(device, count, [&] { return EightBitLayer(device, rows, out, in); });
    return seconds_of_layers(device, count, [&] {
      return LinearLayer{
          numbers(device, type, {rows, in}), numbers(device, type, {rows, out}), {}, param_of(device, type, {out, in})};
    });
  };
  return 6 * shape.rows * shape.out * shape.in * static_cast<double>(count) / seconds();
}

void keep_busy(const at::Device& device, at::ScalarType type, double least_seconds) {
  constexpr int64_t kSize = 8192, kProducts = 32;
  if (device.is_cpu()) return;
  const at::Tensor x = numbers(device, type, {kSize, kSize});
  for (double seconds = 0; seconds < least_seconds;)
    seconds += seconds_of(device, [&] {
      for (int64_t i = 0; i < kProducts; ++i) product(x, x);
    });
}

double operation_seconds(const at::Device& device) {
  constexpr int64_t kTimes = 201, kSize = 4, kOperations = 8;
  const at::Tensor x = numbers(device, at::kFloat, {kSize, kSize}),
                   far = numbers(device, at::kFloat, {static_cast<int64_t>(kFarBytes / 8 / 4)});
  const ParamPtr weight = param_of(device, at::kFloat, {kSize, kSize}), bias = param_of(device, at::kFloat, {kSize});
  const auto operations = [&] {
    bias->restart_grad();
    const at::Tensor rows = product(x, weight->tensor).view({1, kSize, kSize});
    const at::Tensor normed = ops::norm(rows, x.view(rows.sizes()), bias->tensor, bias->tensor, {}).y;
    const at::Tensor active = ops::activation(ops::Activation::gelu_tanh, normed, bias->tensor);
    ops::accumulate_bias_grad(*bias, active.reshape({kSize, kSize}));
    at::empty_like(active).flatten(1);
  };
  std::vector<double> seconds;
  for (int64_t i = 0; i < kTimes; ++i) {
    if (device.is_cpu()) far.sum();
    seconds.push_back(device.is_cpu() ? seconds_of(device, operations) : seconds_of_each(device, operations));
  }
  return spread_of(seconds).median / static_cast<double>(kOperations);
}

double pass_rate(const at::Device& device, const ModelShape& shape, int64_t tokens) {
  const auto whole = [](double number) { return static_cast<int64_t>(number); };
  StepWork work;
  ModelShape one = shape;
  one.layers = 1;
  add_shape(work, one, {.tokens = static_cast<double>(tokens), .seq_length = 0, .element = 4});
  const BlockSizes sizes = {
      tokens, whole(shape.hidden), whole(shape.heads), whole(shape.groups), whole(shape.head_dim), whole(shape.ffn)};
  std::vector<BlockPasses> blocks;
  for (int64_t i = layers_of(work.passed_bytes / 2); i > 0; --i) blocks.emplace_back(device, sizes);
  const at::Tensor x = numbers(device, at::kFloat, {1, tokens, sizes.hidden}),
                   branch = numbers(device, at::kFloat, {1, tokens, sizes.hidden});
  const Between between(device);
  std::vector<double> rounds;
  for (int64_t round = 0; round <= kRounds; ++round) {
    at::Tensor sum = x, gradient = x;
    double seconds = 0;
    for (BlockPasses& block : blocks) seconds += between.seconds_of([&] { sum = block.forward(sum, branch); });
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block)
      seconds += between.seconds_of([&] { gradient = block->backward(gradient, branch); });
    if (round > 0) rounds.push_back(seconds);
  }
  return 3 * work.passed_bytes * static_cast<double>(blocks.size()) / spread_of(rounds).median;
}

}  // namespace drivetrain
