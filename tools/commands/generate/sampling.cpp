#include "generate/sampling.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <drivetrain/error.h>

namespace drivetrain {
namespace {

double uniform(const RandomKey& key) {
  at::Tensor draw = at::zeros({1, 1}, at::TensorOptions(at::kFloat));
  fill_uniform(draw, key);
  return draw.item<float>();
}

// Index of the element in which `rest` of the sum falls.
size_t index_at(const std::vector<double>& p, double rest) {
  for (size_t i = 0; i < p.size(); ++i)
    if ((rest -= p[i]) < 0) return i;
  return p.size() - 1;  // the sum fell short of the draw by rounding
}

// The tokens that may be drawn: all in their order, or the likeliest, likeliest first.
std::vector<int64_t> candidates(const std::vector<double>& logits, const Sampling& sampling) {
  std::vector<int64_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  if (sampling.top_k == 0 && sampling.top_p >= 1) return tokens;
  const auto likelier = [&](int64_t a, int64_t b) {
    const double x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  const size_t count = sampling.top_k > 0 ? static_cast<size_t>(sampling.top_k) : tokens.size();
  std::partial_sort(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count), tokens.end(), likelier);
  tokens.resize(count);
  return tokens;
}

// How many of these, likeliest first, it takes to reach `least`.
size_t nucleus(const std::vector<double>& p, double least) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i)
    if ((sum += p[i]) >= least) return i + 1;
  return p.size();
}

std::vector<double> softmax(const std::vector<double>& logits, const std::vector<int64_t>& tokens, double top,
                            double temperature) {
  std::vector<double> p;
  p.reserve(tokens.size());
  double sum = 0;
  for (const int64_t token : tokens) {
    p.push_back(std::exp((logits[static_cast<size_t>(token)] - top) / temperature));
    sum += p.back();
  }
  for (double& x : p) x /= sum;
  return p;
}

}  // namespace

void check_sampling(const Sampling& sampling, int64_t vocab_size) {
  if (sampling.top_k > vocab_size)
    throw fail(ErrorCode::config, "--top-k ", sampling.top_k, ": the model has ", vocab_size,
               " tokens\n   give a number up to that, or leave it out: then all of them may be drawn");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    throw fail(ErrorCode::config, "--top-p ", sampling.top_p, ": wanted a probability above 0 and up to 1; 1 leaves ",
               "nothing out");
}

int64_t sample(const at::Tensor& logits_V, const Sampling& sampling, const RandomKey& key) {
  const at::Tensor wide = logits_V.to(at::kDouble).contiguous();
  const double* const data = wide.const_data_ptr<double>();
  const std::vector<double> logits(data, data + wide.numel());
  const auto likeliest = std::max_element(logits.begin(), logits.end());
  // Minus infinity is a token that never comes.
  const auto broken = [](double x) { return !(x < std::numeric_limits<double>::infinity()); };
  if (std::any_of(logits.begin(), logits.end(), broken) || std::isinf(*likeliest))
    throw fail(ErrorCode::numeric, "the model's output is not finite: its weights hold infinities or NaN, or overflow");
  if (sampling.temperature == 0) return likeliest - logits.begin();
  const std::vector<int64_t> tokens = candidates(logits, sampling);
  std::vector<double> p = softmax(logits, tokens, *likeliest, sampling.temperature);
  double rest = uniform(key);
  if (sampling.top_p < 1) {
    p.resize(nucleus(p, sampling.top_p));
    rest *= std::accumulate(p.begin(), p.end(), 0.0);
  }
  return tokens[index_at(p, rest)];
}

}  // namespace drivetrain
